/** The stored messages of a channel as a table, filtered by what is in the address. */
import { Link } from '@tanstack/react-router'
import { useState } from 'react'
import { call, send } from '../../api/call.ts'
import type { Answer, Query } from '../../api/call.ts'
import { Button, Menu } from '../../design/controls.tsx'
import { Card, Empty, Notice, absoluteTime, formatCount } from '../../design/display.tsx'
import { paths } from '../../paths.ts'
import { useAction } from '../../shell/action.ts'
import { saveBlob } from '../../shell/files.ts'
import { Filters } from '../../shell/filters.tsx'
import { ClientName } from '../../shell/names.tsx'
import { DataTable } from '../../shell/table.tsx'
import { useViews } from '../../shell/url.ts'
import { valueText } from './values.ts'

const OPERATION = 'GET /{domain_id}/channels/{channel_id}/messages'
const REFRESH_MS = 5_000
/** Rows that can be scrolled to: older ones are found by their time. */
const MAX_ROWS = 10_000
const FIELDS = [
  { name: 'name', label: 'Name', hint: 'Of the record, with its base name' },
  { name: 'publisher', label: 'Publisher', of: 'client' },
  { name: 'subtopic', label: 'Subtopic', hint: 'Such as floor1/room2' },
  { name: 'protocol', label: 'Protocol', options: ['http', 'mqtt', 'coap', 'ws'] },
  { name: 'run', label: 'Run', hint: 'The id of the run of a task that published the message, for eight days' },
  { name: 'message', label: 'Message', hint: 'The id of a message, such as 4711/0' },
  { name: 'from', label: 'From', isTime: true },
  { name: 'to', label: 'To', isTime: true },
  {
    name: 'format',
    label: 'Format',
    hint: 'raw for other bytes than JSON; for JSON that is not SenML the last part of the subtopic, or json. Empty: SenML',
  },
] as const

const moment = new Intl.DateTimeFormat(undefined, {
  month: 'short',
  day: 'numeric',
  hour: '2-digit',
  minute: '2-digit',
  second: '2-digit',
  hourCycle: 'h23',
})

type Message = Answer<typeof OPERATION>['messages'][number] & { place: number }

const EXPORTS = [
  { label: 'CSV', type: 'text/csv', suffix: 'csv' },
  { label: 'JSON lines', type: 'application/x-ndjson', suffix: 'jsonl' },
] as const

/** Everything that matches the filters, as a file, oldest first. */
function ExportMenu({
  params,
  filters,
}: {
  params: { domain_id: string; channel_id: string }
  filters: Query<typeof OPERATION>
}) {
  const [save, isBusy] = useAction('The export failed', async ({ type, suffix }: (typeof EXPORTS)[number]) => {
    const response = await send(OPERATION, { params, query: { ...filters, dir: 'asc' }, headers: { Accept: type } })
    saveBlob(`messages.${suffix}`, await response.blob())
    return 'Exported'
  })
  return (
    <Menu
      label="Export"
      kind="plain"
      items={EXPORTS.map((one) => ({
        label: one.label,
        icon: 'file' as const,
        disabledReason: isBusy ? 'An export is on its way' : undefined,
        onSelect: () => void save(one),
      }))}
    >
      Export
    </Menu>
  )
}

export function StoredMessages({ domain, channel }: { domain: string; channel: string }) {
  const [views, setViews] = useViews()
  const [found, setFound] = useState(0)
  const filters = Object.fromEntries(FIELDS.map(({ name }) => [name, views[name]])) as Query<typeof OPERATION>
  const params = { domain_id: domain, channel_id: channel }
  const hasFilter = FIELDS.some(({ name }) => views[name] !== undefined)
  return (
    <>
      <div className="row wrap">
        <Filters fields={FIELDS} hasName={false} />
        <span className="grow" />
        <ExportMenu params={params} filters={filters} />
      </div>
      {found > MAX_ROWS ? (
        <Notice tone="plain">
          These are the newest {formatCount(MAX_ROWS)} of {formatCount(found)} records. Filter by time to see older
          ones.
        </Notice>
      ) : null}
      <DataTable<Message>
        label="Stored messages"
        queryKey={[OPERATION, params, filters]}
        refetchMs={REFRESH_MS}
        fetchPage={async ({ signal, offset, limit }) => {
          const { total, messages } = await call(OPERATION, {
            params,
            query: { ...filters, offset, limit, links: true },
            signal,
          })
          setFound(total)
          const rows = messages.map((message, index) => ({ ...message, place: offset + index }))
          return { total: Math.min(total, MAX_ROWS), rows }
        }}
        rowId={({ place }) => String(place)}
        columns={[
          {
            key: 'time',
            title: 'Time',
            width: '130px',
            cell: ({ time, created }) => {
              const atMs = (time ?? created ?? 0) * 1_000
              return <span title={absoluteTime(atMs)}>{moment.format(atMs)}</span>
            },
          },
          {
            key: 'name',
            title: 'Name',
            width: 'minmax(80px, 1fr)',
            cell: ({ name }) => name ?? <span className="muted">none</span>,
          },
          {
            key: 'value',
            title: 'Value',
            width: 'minmax(90px, 2fr)',
            cell: (message) => (
              <>
                {valueText(message)} <span className="muted">{message.unit}</span>
              </>
            ),
          },
          {
            key: 'publisher',
            title: 'Publisher',
            width: 'minmax(100px, 1fr)',
            isMinor: true,
            cell: ({ publisher, protocol, run_id: run, task_id: task }) =>
              run !== undefined && task !== undefined ? (
                <Link to={paths.run(domain, task, run)}>a run</Link>
              ) : publisher === '' && protocol === 'task' ? (
                <span className="muted">a task</span>
              ) : (
                <ClientName domain={domain} id={publisher} />
              ),
          },
          {
            key: 'subtopic',
            title: 'Subtopic',
            width: 'minmax(80px, 1fr)',
            isMinor: true,
            cell: ({ subtopic = '' }) =>
              subtopic === '' ? <span className="muted">none</span> : <code>{subtopic}</code>,
          },
          { key: 'protocol', title: 'By', width: '60px', isMinor: true, cell: ({ protocol }) => protocol },
          {
            key: 'runs',
            title: 'Started',
            width: '80px',
            isMinor: true,
            cell: ({ message_id: message }) =>
              message === undefined ? null : <Link to={paths.runs(domain, { message })}>runs</Link>,
          },
        ]}
        empty={
          <Card>
            {hasFilter ? (
              <Empty
                icon="search"
                title="No message matches"
                actions={
                  <Button onClick={() => setViews(Object.fromEntries(FIELDS.map(({ name }) => [name, ''])))}>
                    Clear filters
                  </Button>
                }
              />
            ) : (
              <Empty icon="channel" title="No records yet">
                SenML records are listed here. The filter Format shows other messages.
              </Empty>
            )}
          </Card>
        }
      />
    </>
  )
}
