/** A change of what is desired of the selected clients. */
import { useState } from 'react'
import { call } from '../../../api/call.ts'
import { formatJson, parseJson } from '../../../api/json.ts'
import { TextArea, TextField } from '../../../design/controls.tsx'
import type { BulkAction } from '../../../shell/bulk.tsx'
import { parseDocument } from './fields.ts'
import type { Document } from './fields.ts'

type Change = { readonly name: string; readonly patch: Document }

export const stateAction = (domain: string, disabledReason: string | undefined): BulkAction => ({
  label: 'Desired state',
  disabledReason,
  ask: (_value, onChange) => <ChangeFields onChange={onChange} />,
  run: async ([client = ''], value) => {
    const { name, patch: body } = parseJson(value) as Change
    const params = { domain_id: domain, client_id: client }
    if (name === '') await call('PATCH /{domain_id}/clients/{client_id}/desired-state', { params, body })
    else
      await call('PATCH /{domain_id}/clients/{client_id}/desired-state/{name}', { params: { ...params, name }, body })
  },
})

/** The answer is empty until the change is a JSON object. */
function ChangeFields({ onChange }: { onChange: (value: string) => void }) {
  const [name, setName] = useState('')
  const [text, setText] = useState('')
  const [fault, setFault] = useState<string>()
  const change = (nextName: string, nextText: string) => {
    setName(nextName)
    setText(nextText)
    try {
      const patch = parseDocument(nextText)
      setFault(undefined)
      onChange(formatJson({ name: nextName.trim(), patch } satisfies Change))
    } catch (error) {
      setFault(nextText.trim() === '' ? undefined : (error as Error).message)
      onChange('')
    }
  }
  return (
    <>
      <TextField
        label="Document"
        hint="Its name. Empty for the document without a name"
        value={name}
        onChange={(next) => change(next, text)}
      />
      <TextArea
        label="Change"
        hint='JSON that is merged into what is desired: {"firmware": "1.4"}. null removes a field'
        error={fault}
        value={text}
        onChange={(next) => change(name, next)}
      />
    </>
  )
}
