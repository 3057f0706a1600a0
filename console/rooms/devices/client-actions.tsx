/** What can be done with many clients at once. */
import { useState } from 'react'
import { call } from '../../api/call.ts'
import { formatJson } from '../../api/json.ts'
import { Segments, TextField } from '../../design/controls.tsx'
import type { BulkAction } from '../../shell/bulk.tsx'
import { csvOf, saveFile } from '../../shell/files.ts'
import { splitTags } from '../../shell/tags.ts'
import { commandAction } from './commands/many.tsx'
import { stateAction } from './desired/many.tsx'
import { ChannelField, GroupField } from './choice.tsx'
import { DIRECTION_WORDS, TYPES } from './direction.ts'
import type { Direction } from './direction.ts'

const PAGE_ROWS = 100
/** Clients of one request that connects them. */
const CONNECTED_AT_ONCE = 100

/** Why the user can do it with no client. */
export type Denials = { readonly command: string | undefined; readonly state: string | undefined }

export function clientActions(domain: string, denied: Denials): BulkAction[] {
  const params = { domain_id: domain }
  return [
    commandAction(domain, denied.command),
    stateAction(domain, denied.state),
    ...placing(domain, params),
    ...ending(params),
  ]
}

type Params = { readonly domain_id: string }

/** Where clients belong: channels, tags, a group. */
const placing = (domain: string, params: Params): BulkAction[] => [
  {
    label: 'Connect',
    size: CONNECTED_AT_ONCE,
    ask: (_value, onChange) => <ConnectFields domain={domain} onChange={onChange} />,
    run: async (ids, answer) => {
      const [channel = '', direction = 'both'] = answer.split(' ')
      await call('POST /{domain_id}/channels/connect', {
        params,
        body: { client_ids: [...ids], channel_ids: [channel], types: [...TYPES[direction as Direction]] },
      })
    },
  },
  {
    label: 'Tag',
    ask: (value, onChange) => (
      <TextField
        label="Tags to add"
        value={value}
        onChange={onChange}
        hint="Separated by commas. The tags of the clients stay."
      />
    ),
    run: async ([id = ''], value) => {
      const { tags } = await call('GET /{domain_id}/clients/{client_id}', { params: { ...params, client_id: id } })
      await call('PATCH /{domain_id}/clients/{client_id}/tags', {
        params: { ...params, client_id: id },
        body: { tags: [...new Set([...tags, ...splitTags(value)])] },
      })
    },
  },
  {
    label: 'Group',
    ask: (value, onChange) => (
      <GroupField
        domain={domain}
        value={value}
        onChange={onChange}
        hint="A client is in one group: the new one replaces another."
      />
    ),
    run: async ([id = ''], group) =>
      await call('POST /{domain_id}/clients/{client_id}/parent', {
        params: { ...params, client_id: id },
        body: { parent_group_id: group },
      }),
  },
]

const ending = (params: Params): BulkAction[] => [
  {
    label: 'Enable',
    run: async ([id = '']) =>
      await call('POST /{domain_id}/clients/{client_id}/enable', { params: { ...params, client_id: id } }),
    allows: 409,
  },
  {
    label: 'Disable',
    run: async ([id = '']) =>
      await call('POST /{domain_id}/clients/{client_id}/disable', { params: { ...params, client_id: id } }),
    allows: 409,
  },
  {
    label: 'Delete',
    isDanger: true,
    run: async ([id = '']) =>
      await call('DELETE /{domain_id}/clients/{client_id}', { params: { ...params, client_id: id } }),
    allows: 404,
  },
]

/** The answer has both parts, with a space between them. It is empty without a channel. */
function ConnectFields({ domain, onChange }: { domain: string; onChange: (value: string) => void }) {
  const [channel, setChannel] = useState('')
  const [direction, setDirection] = useState<Direction>('both')
  const answer = (id: string, way: Direction) => onChange(id === '' ? '' : `${id} ${way}`)
  return (
    <>
      <ChannelField
        domain={domain}
        value={channel}
        onChange={(id) => {
          setChannel(id)
          answer(id, direction)
        }}
      />
      <Segments
        label="Direction"
        value={direction}
        onChange={(way) => {
          setDirection(way)
          answer(channel, way)
        }}
        options={DIRECTION_WORDS}
      />
    </>
  )
}

/** Saves the clients as a file with the columns of an import, without the secrets. Clients that were deleted meanwhile are left out. */
export async function exportClients(domain: string, ids: ReadonlySet<string>): Promise<void> {
  const rows: string[][] = []
  let total = Infinity
  for (let offset = 0; offset < total && rows.length < ids.size; offset += PAGE_ROWS) {
    const page = await call('GET /{domain_id}/clients', {
      params: { domain_id: domain },
      query: { offset, limit: PAGE_ROWS, order: 'created_at', dir: 'asc', status: 'all', secrets: false },
    })
    total = page.total
    for (const { id, name, tags, metadata, status } of page.clients)
      if (ids.has(id))
        rows.push([id, name, tags.join(';'), Object.keys(metadata).length === 0 ? '' : formatJson(metadata), status])
  }
  saveFile('clients.csv', csvOf(['id', 'name', 'tags', 'metadata', 'status'], rows))
}
