{{/*
The alerts of the operator, from files/alerts.yaml of its chart: the content of a file of rules as Prometheus and promtool
read it. It is no template: the braces in it are Prometheus' own.
*/}}
{{- define "opcore-lib.alerts" -}}
{{- $rule := .root.Values.metrics.prometheusRule }}
{{- if $rule.enabled }}
{{- include "opcore-lib.needs" (dict "root" .root "kind" "PrometheusRule" "value" "metrics.prometheusRule.enabled") }}
{{- $groups := (include "opcore-lib.file" (dict "root" .root "path" "files/alerts.yaml") | fromYaml).groups | default list }}
{{- $known := list }}
{{- $kept := list }}
{{- range $group := $groups }}
{{- $rules := list }}
{{- range $group.rules }}
{{- $known = append $known (.alert | default .record) }}
{{- if not (has (.alert | default .record) $rule.excludeRules) }}
{{- if and .alert $rule.ruleLabels }}{{ $_ := set . "labels" (merge (dict) $rule.ruleLabels (.labels | default dict)) }}{{ end }}
{{- $rules = append $rules . }}
{{- end }}
{{- end }}
{{- if $rules }}{{ $kept = append $kept (merge (dict "rules" $rules) $group) }}{{ end }}
{{- end }}
{{- range $rule.excludeRules }}
{{- if not (has . $known) }}
{{- fail (printf "metrics.prometheusRule.excludeRules names %s, which this chart does not have; choose from %s." . (join ", " $known)) }}
{{- end }}
{{- end }}
{{- if $kept }}
---
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  {{- include "opcore-lib.metadata" (dict "root" .root "name" (include "opcore-lib.fullname" .) "namespace" $rule.namespace "labels" $rule.labels "annotations" $rule.annotations) | nindent 2 }}
spec:
  groups:
    {{- toYaml $kept | nindent 4 }}
{{- end }}
{{- end }}
{{- end }}
