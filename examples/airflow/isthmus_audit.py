"""The nightly audit as an Airflow DAG: yesterday's messages, at two, when all ledgers are written.

Findings fail the task at once: a person reads the report, and sends what was lost again with
`isthmus repair`. Not proven is tried again for some hours: ledgers may still be on their way. What
is open then the next night looks for again: it finds it in TABLES, so that runs must not overlap.
Needs Airflow 2.9 or later, with the standard provider, and `isthmus` where the worker runs.
"""

from __future__ import annotations

import subprocess
from datetime import timedelta

import pendulum
from airflow import DAG
from airflow.exceptions import AirflowException, AirflowFailException
from airflow.providers.standard.operators.python import PythonOperator
from airflow.timetables.interval import CronDataIntervalTimetable

MESH = "/etc/isthmus/mesh.yaml"
LEDGERS = "s3a://ledgers/"
REPORTS = "/var/lib/isthmus-audit"
TABLES = "s3a://audit/"
MASTER = "local[*]"
FINDINGS = 1


def audit(ds: str) -> None:
    """`ds` is the date of the interval's beginning: the day before the run."""
    command = ["isthmus", "audit", MESH, "--date", ds, "--ledger", LEDGERS]
    command += ["--master", MASTER, "--out", f"{REPORTS}/{ds}", "--results", TABLES]
    done = subprocess.run(command, check=False)
    if done.returncode == FINDINGS:
        raise AirflowFailException(f"findings of {ds}: see {REPORTS}/{ds}/report.html")
    if done.returncode:
        raise AirflowException(f"not proven: see {REPORTS}/{ds}/report.html")


with DAG(
    dag_id="isthmus_audit",
    schedule=CronDataIntervalTimetable("0 2 * * *", timezone="UTC"),
    start_date=pendulum.datetime(2026, 11, 1, tz="UTC"),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 6, "retry_delay": timedelta(hours=1)},
    tags=["isthmus"],
) as dag:
    PythonOperator(task_id="audit", python_callable=audit)
