/** The fields of a command, for one device and for many. */
import { SelectField, TextArea, TextField } from '../../../design/controls.tsx'
import { LIVES } from './form.ts'
import type { CommandFault, CommandForm } from './form.ts'

export function CommandFields({
  form,
  onChange,
  fault,
}: {
  form: CommandForm
  onChange: (form: CommandForm) => void
  fault?: CommandFault | undefined
}) {
  const faultOf = (field: CommandFault['field']) => (fault?.field === field ? fault.message : undefined)
  const change = (name: keyof CommandForm) => (value: string) => onChange({ ...form, [name]: value })
  return (
    <>
      <TextField
        label="Command"
        field="name"
        error={faultOf('name')}
        hint="What to do, in the words of the device: reboot"
        value={form.name}
        onChange={change('name')}
        autoFocus
        autoComplete="off"
        maxLength={64}
      />
      <TextArea
        label="Payload"
        field="payload"
        error={faultOf('payload')}
        hint="Parameters as JSON. Optional"
        rows={5}
        value={form.payload}
        onChange={change('payload')}
      />
      <TextField
        label="Time-out"
        field="timeout"
        hint="The device answers within this time from the delivery: 30s, 5m, 2h"
        value={form.timeout}
        onChange={change('timeout')}
        required
      />
      <SelectField
        label="Expires"
        field="expires_at"
        hint="It ends then, also when the device never got it"
        value={form.life}
        onChange={change('life')}
        options={LIVES}
      />
    </>
  )
}
