{{/* It needs nothing beside what all have, but one value of all means nothing to it. */}}
{{- define "wave-orchestrator.own" -}}
{{- if .Values.watchNamespaces }}
{{- fail "watchNamespaces is set, but plans belong to no namespace and reach into all: name the kinds that they may touch in rbac.read, rbac.nudge and rbac.apply instead, and remove watchNamespaces." }}
{{- end }}
{{- end }}
