{{/* It needs nothing beside what all have, but one value of all means nothing to it. */}}
{{- define "wave-orchestrator.own" -}}
{{- if .Values.watchNamespaces }}
{{- fail "watchNamespaces is set, but plans are cluster-scoped and refer to objects in all namespaces: set the kinds that they may access in rbac.read, rbac.nudge and rbac.apply instead, and remove watchNamespaces." }}
{{- end }}
{{- end }}
