{{/* With one replica there is nothing to protect, and a budget would only stop the drain of a node. */}}
{{- define "opcore-lib.budget" -}}
{{- $budget := .root.Values.podDisruptionBudget }}
{{- if and $budget.enabled (gt (int .root.Values.replicaCount) 1) }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "opcore-lib.metadata" (dict "root" .root "name" (include "opcore-lib.fullname" .)) | nindent 2 }}
spec:
  maxUnavailable: {{ $budget.maxUnavailable }}
  # A pod that is not ready protects nobody, and must not stop a drain either.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "opcore-lib.selector" . | nindent 6 }}
{{- end }}
{{- end }}
