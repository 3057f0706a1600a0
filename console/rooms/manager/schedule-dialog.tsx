/** Sets when a task starts by itself, and whether its worker does that without a task manager. */
import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { call } from '../../api/call.ts'
import type { Task } from '../../api/operations.ts'
import { query } from '../../api/queries.ts'
import { Check, SelectField } from '../../design/controls.tsx'
import { FormDialog } from '../../design/layers.tsx'
import { useFormAction } from '../../shell/action.ts'
import { BROWSER_ZONE } from '../../shell/local-time.ts'
import { ScheduleFields } from '../../shell/schedule-fields.tsx'
import { cronOf, formOf } from '../../shell/schedule-form.ts'

export function ScheduleDialog({ task, onClose }: { task: Task; onClose: () => void }) {
  const [form, setForm] = useState(() => formOf(task.schedule ?? ''))
  const [timezone, setTimezone] = useState(task.timezone ?? BROWSER_ZONE)
  const wasOffline = task.offline === true
  const [isOffline, setOffline] = useState(wasOffline)
  const [worker, setWorker] = useState(task.worker_id ?? '')
  const schedule = cronOf(form)
  const save = useFormAction(
    'The schedule was not saved',
    async () => {
      const offline = isOffline ? { offline: true, worker_id: worker } : wasOffline ? { offline: false } : {}
      await call('PUT /tasks/{task_id}', {
        params: { task_id: task.id },
        body:
          schedule === ''
            ? { schedule: null, timezone: null, ...(wasOffline ? { offline: false } : {}) }
            : { schedule, timezone: timezone.trim(), ...offline },
      })
      return 'Saved'
    },
    onClose,
  )
  return (
    <FormDialog title="Schedule" submit="Save" action={save} onClose={onClose}>
      <ScheduleFields form={form} onChange={setForm} timezone={timezone} onTimezone={setTimezone} />
      {schedule === '' ? null : (
        <Check checked={isOffline} onChange={setOffline}>
          Without a network too, by the clock of its worker
        </Check>
      )}
      {schedule === '' || !isOffline ? null : <WorkerField value={worker} onChange={setWorker} />}
    </FormDialog>
  )
}

function WorkerField({ value, onChange }: { value: string; onChange: (id: string) => void }) {
  const { data } = useQuery(query('GET /workers', { query: { limit: 100 } }))
  const workers = (data?.workers ?? []).map(({ id, name }) => [id, name] as const)
  // The worker of the task may be on another page.
  const isListed = value === '' || workers.some(([id]) => id === value)
  const options = [['', 'Choose a worker'] as const, ...(isListed ? [] : [[value, value] as const]), ...workers]
  return (
    <SelectField
      label="Worker"
      field="worker_id"
      value={value}
      onChange={onChange}
      options={options}
      hint="The only one that runs the task"
    />
  )
}
