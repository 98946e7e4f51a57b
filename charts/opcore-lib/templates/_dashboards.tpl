{{/* The dashboards of the operator, one ConfigMap for each file in files/dashboards, as Grafana's sidecar finds them. */}}
{{- define "opcore-lib.dashboards" -}}
{{- $dashboards := .root.Values.metrics.dashboards }}
{{- if $dashboards.enabled }}
{{- range $path, $_ := .root.Files.Glob "files/dashboards/*.json" }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  {{- $name := printf "%s-%s" (include "opcore-lib.fullname" $) (base $path | trimSuffix ".json") }}
  {{- include "opcore-lib.metadata" (dict "root" $.root "name" $name "namespace" $dashboards.namespace "labels" $dashboards.labels "annotations" $dashboards.annotations) | nindent 2 }}
data:
  {{ include "opcore-lib.name" $ }}-{{ base $path }}: |-
    {{- $.root.Files.Get $path | trim | nindent 4 }}
{{ end }}
{{- end }}
{{- end }}
