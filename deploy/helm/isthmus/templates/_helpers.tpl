{{/* Name of all that a release makes. */}}
{{- define "isthmus.name" -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* Name of what belongs to a site, given {root, site}. */}}
{{- define "isthmus.site" -}}
{{- $name := printf "%s-%s" (include "isthmus.name" .root) .site -}}
{{- if or (gt (len $name) 52) (not (regexMatch "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" .site)) -}}
{{- fail (printf "site %q: its name, behind %q, is to be at most 52 characters of a-z, 0-9 and -" .site (include "isthmus.name" .root)) -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{/* Labels that choose a site's pods, given {root, site}. */}}
{{- define "isthmus.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
isthmus/site: {{ .site }}
{{- end -}}

{{/* All labels of what belongs to a site, given {root, site}. */}}
{{- define "isthmus.labels" -}}
{{ include "isthmus.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{/* Name of the ConfigMap with the mesh file. */}}
{{- define "isthmus.mesh" -}}
{{- if and .Values.mesh .Values.meshConfigMap -}}
{{- fail "give the mesh file once: as `mesh` or as `meshConfigMap`" -}}
{{- end -}}
{{- if not (or .Values.mesh .Values.meshConfigMap) -}}
{{- fail "the mesh file is missing: helm install ... --set-file mesh=mesh.yaml, or name a ConfigMap in `meshConfigMap`" -}}
{{- end -}}
{{- .Values.meshConfigMap | default (printf "%s-mesh" (include "isthmus.name" .)) -}}
{{- end -}}

{{/* Command by which a pod says that its node lives. */}}
{{- define "isthmus.probe" -}}
- /opt/isthmus/bin/isthmus
- health
- --state
- /var/lib/isthmus
{{- end -}}
