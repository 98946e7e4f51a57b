{{/* Objects of the user's own, as YAML or as text; both may use templates. */}}
{{- define "opcore-lib.extra" -}}
{{- range .root.Values.extraObjects }}
---
{{ tpl (kindIs "string" . | ternary . (toYaml .)) $.root }}
{{- end }}
{{- end }}
