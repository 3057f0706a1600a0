/** One command to each of the selected clients. */
import { useState } from 'react'
import { call } from '../../../api/call.ts'
import { formatJson, parseJson } from '../../../api/json.ts'
import type { CommandCreate } from '../../../api/operations.ts'
import type { BulkAction } from '../../../shell/bulk.tsx'
import { CommandFields } from './fields.tsx'
import { CommandFault, NEW_COMMAND, commandOf, newKey } from './form.ts'
import type { CommandForm } from './form.ts'

type Order = { readonly key: string; readonly body: CommandCreate }

export const commandAction = (domain: string, disabledReason: string | undefined): BulkAction => ({
  label: 'Command',
  disabledReason,
  ask: (_value, onChange) => <OrderFields onChange={onChange} />,
  run: async ([client = ''], value) => {
    const { key, body } = parseJson(value) as Order
    await call('POST /{domain_id}/clients/{client_id}/commands', {
      params: { domain_id: domain, client_id: client },
      body,
      headers: { 'Idempotency-Key': `${key}-${client}` },
    })
  },
})

/** The answer is empty until it is a command. */
function OrderFields({ onChange }: { onChange: (value: string) => void }) {
  const [form, setForm] = useState(NEW_COMMAND)
  const [fault, setFault] = useState<CommandFault>()
  const change = (next: CommandForm) => {
    setForm(next)
    try {
      onChange(formatJson({ key: newKey(), body: commandOf(next, Date.now()) } satisfies Order))
      setFault(undefined)
    } catch (error) {
      if (!(error instanceof CommandFault)) throw error
      setFault(next.name === '' && error.field === 'name' ? undefined : error)
      onChange('')
    }
  }
  return <CommandFields form={form} onChange={change} fault={fault} />
}
