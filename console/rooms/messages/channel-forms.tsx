/** Changing a channel, and sending to it. */
import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { call } from '../../api/call.ts'
import type { Channel as ChannelRecord } from '../../api/operations.ts'
import { query } from '../../api/queries.ts'
import { Check, Segments, TextArea, TextField } from '../../design/controls.tsx'
import { Notice, absoluteTime, counted } from '../../design/display.tsx'
import { ANY_FIELD } from '../../design/form.tsx'
import { FormDialog } from '../../design/layers.tsx'
import { useFormAction } from '../../shell/action.ts'
import { splitTags } from '../../shell/tags.ts'
import { RetentionField, retentionOf } from '../../shell/retention.tsx'

export function EditChannel({
  channel,
  domain,
  onClose,
}: {
  channel: ChannelRecord
  domain: string
  onClose: () => void
}) {
  const [name, setName] = useState(channel.name)
  const [description, setDescription] = useState(channel.description ?? '')
  const [tags, setTags] = useState(channel.tags.join(', '))
  const [days, setDays] = useState(channel.retention_days === undefined ? '' : String(channel.retention_days))
  const [isRemoving, setRemoving] = useState(false)
  const params = { domain_id: domain, channel_id: channel.id }
  const old = useOldRecords(params, Number(days))
  const save = useFormAction(
    'The channel was not changed',
    async () => {
      await call('PATCH /{domain_id}/channels/{channel_id}', {
        params,
        body: { name: name.trim(), description, tags: splitTags(tags), retention_days: retentionOf(days) },
      })
      if (isRemoving && old !== undefined)
        await call('DELETE /{domain_id}/channels/{channel_id}/messages', { params, query: { to: old.before } })
      return 'Saved'
    },
    onClose,
  )
  return (
    <FormDialog title="Edit channel" submit="Save" action={save} onClose={onClose}>
      <TextField label="Name" field="name" value={name} onChange={setName} />
      <TextField label="Description" field="description" value={description} onChange={setDescription} />
      <TextField label="Tags" field="tags" value={tags} onChange={setTags} hint="Separated by commas" />
      <RetentionField
        value={days}
        onChange={(value) => (setDays(value), setRemoving(false))}
        none="Kept as the domain says"
      />
      {old === undefined || old.records === 0 ? null : (
        <Notice tone="warn">
          {old.isExact ? '' : 'At least '}
          {counted(old.records, 'record')} of the channel {old.records === 1 ? 'is' : 'are'} older than{' '}
          {absoluteTime(old.before * 1_000)}.
          <Check checked={isRemoving} onChange={setRemoving}>
            Delete {old.records === 1 ? 'it' : 'them'} now, for ever
          </Check>
        </Notice>
      )}
    </FormDialog>
  )
}

const DAY_SECONDS = 86_400

/** What is stored from before a period; undefined without a period, and while it is counted. */
function useOldRecords(
  params: { domain_id: string; channel_id: string },
  days: number,
): { records: number; isExact: boolean; before: number } | undefined {
  const [now] = useState(() => Math.floor(Date.now() / 1_000))
  const before = now - days * DAY_SECONDS
  const { data, isPlaceholderData } = useQuery({
    ...query('GET /{domain_id}/channels/{channel_id}/messages', { params, query: { to: before, only_total: true } }),
    enabled: days > 0,
  })
  if (days === 0 || data === undefined || isPlaceholderData) return undefined
  return { records: data.total, isExact: data.total_exact !== false, before }
}

export function SendToChannel({
  domain,
  channel,
  onClose,
}: {
  domain: string
  channel: ChannelRecord
  onClose: () => void
}) {
  const [subtopic, setSubtopic] = useState('')
  const [type, setType] = useState<'application/senml+json' | 'application/json' | 'text/plain'>(
    'application/senml+json',
  )
  const [stored, setStored] = useState(0)
  const [payload, setPayload] = useState('[{"n":"temperature","u":"Cel","v":21.5}]')
  const send = useFormAction('The message was not stored', async () => {
    const params = { domain_id: domain, channel_id: channel.id }
    const headers = { 'Content-Type': type }
    const rest = subtopic.trim().replaceAll('.', '/')
    if (rest === '') await call('POST /m/{domain_id}/c/{channel_id}', { params, headers, body: payload })
    else
      await call('POST /m/{domain_id}/c/{channel_id}/{rest}', {
        params: { ...params, rest },
        headers,
        body: payload,
      })
    setStored((before) => before + 1)
  })
  return (
    <FormDialog title={`Send to ${channel.name}`} submit="Send" action={send} onClose={onClose}>
      <p className="muted">You publish as yourself. Devices publish with the secret of a client.</p>
      <Segments
        label="Format"
        value={type}
        onChange={setType}
        options={[
          ['application/senml+json', 'SenML'],
          ['application/json', 'JSON'],
          ['text/plain', 'Text'],
        ]}
      />
      <TextArea label="Message" field={ANY_FIELD} value={payload} onChange={setPayload} />
      <TextField
        label="Subtopic"
        field="subtopic"
        value={subtopic}
        onChange={setSubtopic}
        hint="Such as floor1/room2. Optional."
      />
      {stored === 0 ? null : (
        <div role="status">
          <Notice tone="ok">{counted(stored, 'message')} stored.</Notice>
        </div>
      )}
    </FormDialog>
  )
}
