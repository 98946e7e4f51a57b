{{/* What a schema cannot see. Each failure says what is wrong and what to do. */}}
{{- define "opcore-lib.check" -}}
{{- $values := .root.Values }}
{{- $own := .own | default dict }}
{{- with $own.Error }}{{ fail (printf "own of this chart cannot be parsed: %s" .) }}{{ end }}
{{- include "opcore-lib.keys" (dict "content" $own "known" (list "args" "env" "ports" "volumes" "volumeMounts" "egress") "where" "own") }}
{{- if and (gt (int $values.replicaCount) 1) (not $values.leaderElection.enabled) }}
{{- fail (printf "replicaCount is %d and leaderElection.enabled is false: several operators would do the same work at once. Remove leaderElection.enabled=false, or set replicaCount to 1." (int $values.replicaCount)) }}
{{- end }}
{{- if and $values.metrics.serviceMonitor.enabled $values.metrics.podMonitor.enabled }}
{{- fail "metrics.serviceMonitor and metrics.podMonitor are both enabled: every metric would be scraped twice. Enable one of them." }}
{{- end }}
{{- if not (or $values.serviceAccount.create $values.serviceAccount.name) }}
{{- fail "serviceAccount.create is false and serviceAccount.name is empty: the operator would get its rights through the ServiceAccount that all pods of the namespace share. Name a ServiceAccount of its own in serviceAccount.name." }}
{{- end }}
{{- end }}

{{/* Fails when the cluster does not know a kind of the Prometheus operator. Beside `root`: `kind`, `value`. */}}
{{- define "opcore-lib.needs" -}}
{{- $api := printf "monitoring.coreos.com/v1/%s" .kind }}
{{- if and .root.Values.metrics.checkApi (not (.root.Capabilities.APIVersions.Has $api)) }}
{{- fail (printf "%s is true, but this cluster has no %s: install the CRDs of the Prometheus operator first, or set %s=false. To render without a cluster, pass --api-versions %s to helm template, or set metrics.checkApi=false." .value .kind .value $api) }}
{{- end }}
{{- end }}
