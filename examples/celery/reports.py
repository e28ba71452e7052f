"""An ordinary Celery application: it knows of two exchanges, and of nothing between them."""

import os

from celery import Celery
from kombu import Exchange, Queue

app = Celery("reports", broker=os.environ["REPORTS_BROKER"])
app.conf.update(
    # Where tasks are sent. The route names no queue, so that none is made where they are sent.
    task_routes={"reports.*": {"exchange": "reports", "routing_key": "reports.make"}},
    # Where a worker takes them from; the exchange is the mesh's to declare.
    task_queues=[
        Queue("reports", Exchange("reports.in", type="topic", no_declare=True), "reports.#")
    ],
    task_default_queue="reports",
    # A task counts as sent once the broker has confirmed it: from there on it is not lost.
    broker_transport_options={"confirm_publish": True},
    broker_connection_retry_on_startup=True,
    worker_hijack_root_logger=False,
)


@app.task(name="reports.make")
def make(title: str) -> str:
    """Make one report."""
    return f"the report on {title} is made"
