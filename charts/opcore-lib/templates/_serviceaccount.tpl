{{/* Only the operator's own pod asks for the token: see the deployment. */}}
{{- define "opcore-lib.serviceaccount" -}}
{{- if .root.Values.serviceAccount.create }}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "opcore-lib.metadata" (dict "root" .root "name" (include "opcore-lib.serviceaccountname" .) "annotations" .root.Values.serviceAccount.annotations) | nindent 2 }}
automountServiceAccountToken: false
{{- end }}
{{- end }}
