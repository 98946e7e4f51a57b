{{- define "opcore-lib.deployment" -}}
{{- $values := .root.Values }}
{{- $own := .own | default dict }}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  {{- include "opcore-lib.metadata" (dict "root" .root "name" (include "opcore-lib.fullname" .)) | nindent 2 }}
spec:
  replicas: {{ int $values.replicaCount }}
  strategy:
    {{- if $values.leaderElection.enabled }}
    # As Kubernetes has it by default. Said here, so that server-side apply can take it back when the type changes.
    type: RollingUpdate
    rollingUpdate:
      maxSurge: 25%
      maxUnavailable: 25%
    {{- else }}
    # Nobody elects a leader: the old pod must be gone before the new one begins.
    type: Recreate
    {{- end }}
  selector:
    matchLabels:
      {{- include "opcore-lib.selector" . | nindent 6 }}
  template:
    metadata:
      labels:
        {{- $fixed := include "opcore-lib.selector" . | fromYaml }}
        {{- toYaml (merge (dict) $fixed $values.podLabels (include "opcore-lib.labels" . | fromYaml)) | nindent 8 }}
      annotations:
        kubectl.kubernetes.io/default-container: operator
        {{- with merge (dict) $values.podAnnotations $values.commonAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      serviceAccountName: {{ include "opcore-lib.serviceaccountname" . | quote }}
      # The operator talks to the API server.
      automountServiceAccountToken: true
      terminationGracePeriodSeconds: {{ int $values.terminationGracePeriodSeconds }}
      {{- range $field := list "imagePullSecrets" "priorityClassName" "nodeSelector" "tolerations" "affinity" }}
      {{- with get $values $field }}
      {{- toYaml (dict $field .) | nindent 6 }}
      {{- end }}
      {{- end }}
      {{- with $values.topologySpreadConstraints }}
      topologySpreadConstraints:
        {{- range . }}
        {{- if hasKey . "labelSelector" }}
        {{- toYaml (list .) | nindent 8 }}
        {{- else }}
        {{- toYaml (list (merge (dict "labelSelector" (dict "matchLabels" $fixed)) .)) | nindent 8 }}
        {{- end }}
        {{- end }}
      {{- end }}
      {{- with $values.podSecurityContext }}
      securityContext:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      containers:
        - name: operator
          image: {{ include "opcore-lib.image" . | quote }}
          imagePullPolicy: {{ $values.image.pullPolicy }}
          {{- with concat ($own.args | default list) $values.extraArgs }}
          args:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          env:
            {{- include "opcore-lib.env" . | trim | nindent 12 }}
          ports:
            - name: metrics
              containerPort: 8080
            {{- with $own.ports }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          livenessProbe:
            httpGet:
              path: /healthz
              port: metrics
          readinessProbe:
            httpGet:
              path: /readyz
              port: metrics
          {{- with $values.resources }}
          resources:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          {{- with $values.securityContext }}
          securityContext:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          {{- with concat ($own.volumeMounts | default list) $values.extraVolumeMounts }}
          volumeMounts:
            {{- toYaml . | nindent 12 }}
          {{- end }}
      {{- with concat ($own.volumes | default list) $values.extraVolumes }}
      volumes:
        {{- toYaml . | nindent 8 }}
      {{- end }}
{{- end }}

{{/* The settings of the operator: docs/reference/flags.md lists them. */}}
{{- define "opcore-lib.env" -}}
{{- $values := .root.Values }}
- name: OPCORE_LOG_LEVEL
  value: {{ $values.log.level | quote }}
- name: OPCORE_LOG_FORMAT
  value: {{ $values.log.format | quote }}
- name: OPCORE_CONCURRENCY
  value: {{ int $values.concurrency | quote }}
- name: OPCORE_OWNERSHIP_CONTRACT
  value: {{ $values.ownershipContract | quote }}
- name: OPCORE_LEADER_ELECT
  value: {{ $values.leaderElection.enabled | quote }}
{{- if $values.leaderElection.enabled }}
- name: OPCORE_LEASE_NAME
  value: {{ include "opcore-lib.fullname" . | quote }}
- name: OPCORE_LEASE_DURATION
  value: {{ $values.leaderElection.leaseDuration | quote }}
{{- end }}
{{- with $values.watchNamespaces }}
- name: OPCORE_WATCH_NAMESPACES
  value: {{ . | uniq | join "," | quote }}
{{- end }}
{{- with concat ((.own | default dict).env | default list) $values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}
