/** The HTTP requests that the runs of a task can send. */
import { useState } from 'react'
import { call } from '../../api/call.ts'
import type { Task } from '../../api/operations.ts'
import { TextField, TextArea } from '../../design/controls.tsx'
import { FormDialog } from '../../design/layers.tsx'
import { useFormAction } from '../../shell/action.ts'
import { formatOrigins, parseOrigins } from './http-form.ts'

export function HttpDialog({ task, onClose }: { task: Pick<Task, 'id' | 'http'>; onClose: () => void }) {
  const { http } = task
  const [origins, setOrigins] = useState(formatOrigins(http?.allow ?? []))
  const [requests, setRequests] = useState(http === undefined ? '' : String(http.max_requests))
  const [bytes, setBytes] = useState(http === undefined ? '' : String(http.max_bytes))
  const [timeout, setTimeLimit] = useState(http?.timeout ?? '')
  const save = useFormAction(
    'The HTTP requests were not saved',
    async () => {
      const allow = parseOrigins(origins)
      const limits = {
        ...(requests === '' ? {} : { max_requests: Number(requests) }),
        ...(bytes === '' ? {} : { max_bytes: Number(bytes) }),
        ...(timeout === '' ? {} : { timeout }),
      }
      await call('PUT /tasks/{task_id}', {
        params: { task_id: task.id },
        body: { http: allow.length === 0 ? null : { allow, ...limits } },
      })
      return 'Saved'
    },
    onClose,
  )
  return (
    <FormDialog title="HTTP requests" submit="Save" action={save} onClose={onClose}>
      <TextArea
        label="Its runs can send requests to"
        field="http.allow"
        value={origins}
        onChange={setOrigins}
        hint="One line each: methods, then scheme and host, such as GET,POST https://api.example.com. Without methods: GET and HEAD. Empty: no requests"
      />
      <TextField
        label="Requests of a run, at most"
        field="http.max_requests"
        value={requests}
        onChange={setRequests}
        hint="Empty: 32"
      />
      <TextField
        label="Bytes of a run, at most"
        field="http.max_bytes"
        value={bytes}
        onChange={setBytes}
        hint="Of requests and responses together. Empty: 4194304"
      />
      <TextField
        label="Time of all requests of a run, at most"
        field="http.timeout"
        value={timeout}
        onChange={setTimeLimit}
        hint="Such as 1m. Empty: 30s"
      />
    </FormDialog>
  )
}
