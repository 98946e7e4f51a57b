{{- define "opcore-lib.networkpolicy" -}}
{{- $policy := .root.Values.networkPolicy }}
{{- if $policy.enabled }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "opcore-lib.metadata" (dict "root" .root "name" (include "opcore-lib.fullname" .)) | nindent 2 }}
spec:
  podSelector:
    matchLabels:
      {{- include "opcore-lib.selector" . | nindent 6 }}
  policyTypes: [Ingress, Egress]
  ingress:
    # Metrics and probes.
    - ports:
        - port: metrics
          protocol: TCP
      {{- with $policy.metricsFrom }}
      from:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    {{- with $policy.extraIngress }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  egress:
    # DNS. Some clusters serve it on another port behind the Service.
    - ports:
        {{- range $port := list 53 5353 }}
        {{- range $protocol := list "UDP" "TCP" }}
        - port: {{ $port }}
          protocol: {{ $protocol }}
        {{- end }}
        {{- end }}
    # The API server: many plugins see its own port, not that of the Service.
    - ports:
        {{- range $policy.apiServer.ports }}
        - port: {{ . }}
          protocol: TCP
        {{- end }}
      {{- with $policy.apiServer.to }}
      to:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    {{- with concat ((.own | default dict).egress | default list) $policy.extraEgress }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
{{- end }}
