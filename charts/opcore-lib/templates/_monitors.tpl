{{/* Nobody calls the operator: the Service exists for those who scrape metrics through one. */}}
{{- define "opcore-lib.service" -}}
{{- $metrics := .root.Values.metrics }}
{{- if or $metrics.service.enabled $metrics.serviceMonitor.enabled }}
---
apiVersion: v1
kind: Service
metadata:
  {{- include "opcore-lib.metadata" (dict "root" .root "name" (printf "%s-metrics" (include "opcore-lib.fullname" .)) "annotations" $metrics.service.annotations) | nindent 2 }}
spec:
  selector:
    {{- include "opcore-lib.selector" . | nindent 4 }}
  ports:
    - name: metrics
      port: 8080
      targetPort: metrics
{{- end }}
{{- end }}

{{- define "opcore-lib.monitors" -}}
{{- $metrics := .root.Values.metrics }}
{{- if $metrics.serviceMonitor.enabled }}
{{- include "opcore-lib.monitor" (dict "root" .root "kind" "ServiceMonitor" "value" "metrics.serviceMonitor.enabled" "monitor" $metrics.serviceMonitor "endpoints" "endpoints") }}
{{- end }}
{{- if $metrics.podMonitor.enabled }}
{{- include "opcore-lib.monitor" (dict "root" .root "kind" "PodMonitor" "value" "metrics.podMonitor.enabled" "monitor" $metrics.podMonitor "endpoints" "podMetricsEndpoints") }}
{{- end }}
{{- end }}

{{- define "opcore-lib.monitor" -}}
{{- include "opcore-lib.needs" . }}
{{- $monitor := .monitor }}
---
apiVersion: monitoring.coreos.com/v1
kind: {{ .kind }}
metadata:
  {{- include "opcore-lib.metadata" (dict "root" .root "name" (include "opcore-lib.fullname" .) "namespace" $monitor.namespace "labels" $monitor.labels "annotations" $monitor.annotations) | nindent 2 }}
spec:
  selector:
    matchLabels:
      {{- include "opcore-lib.selector" . | nindent 6 }}
  namespaceSelector:
    matchNames: [{{ .root.Release.Namespace | quote }}]
  {{ .endpoints }}:
    - port: metrics
      path: /metrics
      honorLabels: {{ $monitor.honorLabels }}
      {{- range $field := list "interval" "scrapeTimeout" "relabelings" "metricRelabelings" }}
      {{- with get $monitor $field }}
      {{- toYaml (dict $field .) | nindent 6 }}
      {{- end }}
      {{- end }}
{{ end }}
