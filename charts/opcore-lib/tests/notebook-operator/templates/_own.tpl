{{/* What only this operator has. */}}
{{- define "notebook-operator.own" -}}
{{- with .Values.motto }}
env:
  - name: NOTEBOOK_MOTTO
    value: {{ . | quote }}
{{- end }}
{{- end }}
