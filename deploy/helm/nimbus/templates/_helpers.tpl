{{- define "nimbus.labels" -}}
app.kubernetes.io/name: nimbus
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "nimbus.selector" -}}
{app.kubernetes.io/name: nimbus, app.kubernetes.io/instance: {{ .root.Release.Name }}, app.kubernetes.io/component: {{ .component }}}
{{- end }}

{{- define "nimbus.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "nimbus.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Variables of every daemon. Fixed ids and folders, so that a restarted pod is the same scheduler or worker. */}}
{{- define "nimbus.environment" -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: NIMBUS__SCHEDULER__STATE_DIR
  value: /var/lib/nimbus
- name: NIMBUS__API__AUTH
  value: required
- name: NIMBUS__API__TOKENS_FILE
  value: /etc/nimbus-tokens/tokens.json
- name: NIMBUS__API__TLS
  value: '{"certificate": "/etc/nimbus-tls/tls.crt", "key": "/etc/nimbus-tls/tls.key"}'
- name: NIMBUS__LOG__FORMAT
  value: json
- name: NIMBUS__WORKER__EMBEDDED
  value: "false"
{{- end }}

{{- define "nimbus.mounts" -}}
- {name: config, mountPath: /etc/nimbus, readOnly: true}
- {name: tls, mountPath: /etc/nimbus-tls, readOnly: true}
- {name: tokens, mountPath: /etc/nimbus-tokens, readOnly: true}
- {name: state, mountPath: /var/lib/nimbus}
- {name: tmp, mountPath: /tmp}
{{- end }}

{{- define "nimbus.volumes" -}}
- name: config
  configMap: {name: {{ .Release.Name }}}
- name: tls
  secret: {secretName: {{ .Values.tlsSecret }}, defaultMode: 0440}
- name: tokens
  secret: {secretName: {{ .Values.tokensSecret }}, defaultMode: 0440}
- name: tmp
  emptyDir: {}
{{- end }}

{{- define "nimbus.claim" -}}
- metadata: {name: state}
  spec:
    accessModes: [ReadWriteOnce]
    {{- with .className }}
    storageClassName: {{ . }}
    {{- end }}
    resources: {requests: {storage: {{ .size }}}}
{{- end }}

{{- define "nimbus.placement" -}}
{{- with .nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}
