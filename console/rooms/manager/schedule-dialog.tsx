/** Sets when a task starts by itself. */
import { useState } from 'react'
import { call } from '../../api/call.ts'
import type { Task } from '../../api/operations.ts'
import { FormDialog } from '../../design/layers.tsx'
import { useFormAction } from '../../shell/action.ts'
import { BROWSER_ZONE } from '../../shell/local-time.ts'
import { ScheduleFields } from '../../shell/schedule-fields.tsx'
import { cronOf, formOf } from '../../shell/schedule-form.ts'

export function ScheduleDialog({ task, onClose }: { task: Task; onClose: () => void }) {
  const [form, setForm] = useState(() => formOf(task.schedule ?? ''))
  const [timezone, setTimezone] = useState(task.timezone ?? BROWSER_ZONE)
  const schedule = cronOf(form)
  const save = useFormAction(
    'The schedule was not saved',
    async () => {
      await call('PUT /tasks/{task_id}', {
        params: { task_id: task.id },
        body: schedule === '' ? { schedule: null, timezone: null } : { schedule, timezone: timezone.trim() },
      })
      return 'Saved'
    },
    onClose,
  )
  return (
    <FormDialog title="Schedule" submit="Save" action={save} onClose={onClose}>
      <ScheduleFields form={form} onChange={setForm} timezone={timezone} onTimezone={setTimezone} />
    </FormDialog>
  )
}
