/** The tab Commands of a client: what it was given, what came of it, and a new command. */
import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { useMemo, useRef, useState } from 'react'
import type { ReactNode } from 'react'
import { call } from '../../../api/call.ts'
import { formatJson } from '../../../api/json.ts'
import type { Command, CommandCreate } from '../../../api/operations.ts'
import { query } from '../../../api/queries.ts'
import { Button, Code, Id } from '../../../design/controls.tsx'
import { Card, Empty, Facts, Notice, State, Time } from '../../../design/display.tsx'
import type { Tone } from '../../../design/display.tsx'
import { Dialog, FormDialog } from '../../../design/layers.tsx'
import { paths } from '../../../paths.ts'
import { InputError, useAction, useFormAction } from '../../../shell/action.ts'
import { Filters } from '../../../shell/filters.tsx'
import { UserName } from '../../../shell/names.tsx'
import { useClientDenied } from '../../../shell/permissions.ts'
import { QueryView } from '../../../shell/states.tsx'
import { DataTable } from '../../../shell/table.tsx'
import type { Column } from '../../../shell/table.tsx'
import { useView, useViews } from '../../../shell/url.ts'
import { CommandFields } from './fields.tsx'
import { CommandFault, NEW_COMMAND, commandOf, newKey } from './form.ts'
import type { CommandForm } from './form.ts'

const LIST = 'GET /{domain_id}/clients/{client_id}/commands'
const ONE = 'GET /{domain_id}/clients/{client_id}/commands/{command_id}'
const REFRESH_MS = 2_000

const STATES: Readonly<Record<string, readonly [Tone, string]>> = {
  queued: ['idle', 'Queued'],
  delivered: ['active', 'Delivered'],
  succeeded: ['ok', 'Succeeded'],
  failed: ['bad', 'Failed'],
  rejected: ['bad', 'Rejected'],
  timed_out: ['warn', 'Timed out'],
  expired: ['warn', 'Expired'],
  cancelled: ['idle', 'Cancelled'],
}
const isOpen = ({ status }: Command) => status === 'queued' || status === 'delivered'

const FIELDS = [{ name: 'status', label: 'Status', options: ['open', ...Object.keys(STATES)] }] as const

function CommandStatus({ status }: { status: string }) {
  const [tone, word] = STATES[status] ?? ['idle', status]
  return <State tone={tone}>{word}</State>
}

/** What came of it, in one line. */
function outcomeOf({ result, reason }: Command): string {
  if (reason !== undefined) return reason
  return result === undefined ? '' : formatJson(result)
}

export function CommandHistory({ domain, client }: { domain: string; client: string }) {
  const [views, setViews] = useViews()
  const [shown, setShown] = useView('command')
  const [isGiving, setGiving] = useState(false)
  const cannotCommand = useClientDenied(domain, client)('command')
  const params = { domain_id: domain, client_id: client }
  const { name, status } = views
  const filters = useMemo(() => ({ name, status }), [name, status])
  const hasFilter = name !== undefined || status !== undefined
  return (
    <>
      <div className="row wrap">
        <div className="grow">
          <Filters fields={FIELDS} placeholder="Name of the command" />
        </div>
        <Button kind="primary" icon="send" disabledReason={cannotCommand} onClick={() => setGiving(true)}>
          Give a command
        </Button>
      </div>
      <DataTable<Command>
        label="Commands"
        queryKey={[LIST, params, filters]}
        refetchMs={REFRESH_MS}
        fetchPage={async ({ signal, ...page }) => {
          const { total, commands: rows } = await call(LIST, { params, query: { ...filters, ...page }, signal })
          return { total, rows }
        }}
        rowId={({ id }) => id}
        hrefOf={({ id }) => paths.command(domain, client, id)}
        columns={columnsOf(domain, client)}
        empty={
          <Card>
            {hasFilter ? (
              <Empty
                icon="search"
                title="No command matches"
                actions={<Button onClick={() => setViews({ name: '', status: '' })}>Clear filters</Button>}
              />
            ) : (
              <Empty icon="send" title="No commands yet">
                A command makes the device do something, and keeps what came of it. A device that is offline gets it
                when it comes back.
              </Empty>
            )}
          </Card>
        }
      />
      {shown === '' ? null : (
        <OneCommand
          domain={domain}
          client={client}
          command={shown}
          cannotCancel={cannotCommand}
          onClose={() => setShown('')}
        />
      )}
      {isGiving ? <GiveCommand domain={domain} client={client} onClose={() => setGiving(false)} /> : null}
    </>
  )
}

const columnsOf = (domain: string, client: string): Column<Command>[] => [
  {
    key: 'name',
    title: 'Command',
    width: 'minmax(100px, 1fr)',
    cell: (command) => (
      <Link className="main" tabIndex={-1} to={paths.command(domain, client, command.id)}>
        {command.name}
      </Link>
    ),
  },
  { key: 'status', title: 'Status', width: '110px', cell: (one) => <CommandStatus status={one.status} /> },
  {
    key: 'outcome',
    title: 'Result',
    width: 'minmax(80px, 2fr)',
    isMinor: true,
    cell: (one) => <span title={outcomeOf(one)}>{outcomeOf(one)}</span>,
  },
  { key: 'given', title: 'Given', width: '90px', cell: ({ created_at: at }) => <Time at={at} /> },
  {
    key: 'ended',
    title: 'Ended',
    width: '90px',
    isMinor: true,
    cell: ({ ended_at: at }) => (at === undefined ? null : <Time at={at} />),
  },
]

function GiveCommand({ domain, client, onClose }: { domain: string; client: string; onClose: () => void }) {
  const [form, setForm] = useState(NEW_COMMAND)
  /** The last request of this form: one whose answer was lost is sent again as it was, and gives no second command. */
  const sent = useRef<{ form: CommandForm; body: CommandCreate; key: string }>(undefined)
  const give = useFormAction(
    'The command was not given',
    async () => {
      if (sent.current?.form !== form) sent.current = { form, body: read(form), key: newKey() }
      const { body, key } = sent.current
      await call('POST /{domain_id}/clients/{client_id}/commands', {
        params: { domain_id: domain, client_id: client },
        body,
        headers: { 'Idempotency-Key': key },
      })
      return 'The command is given'
    },
    onClose,
  )
  return (
    <FormDialog title="Give a command" submit="Give command" action={give} onClose={onClose}>
      <CommandFields form={form} onChange={setForm} />
    </FormDialog>
  )
}

function read(form: CommandForm): CommandCreate {
  try {
    return commandOf(form, Date.now())
  } catch (error) {
    throw error instanceof CommandFault ? new InputError(error.field, error.message) : error
  }
}

function OneCommand({
  domain,
  client,
  command: id,
  cannotCancel,
  onClose,
}: {
  domain: string
  client: string
  command: string
  cannotCancel: string | undefined
  onClose: () => void
}) {
  const params = { domain_id: domain, client_id: client, command_id: id }
  const result = useQuery({
    ...query(ONE, { params }),
    refetchInterval: ({ state: { data } }) => (data !== undefined && !isOpen(data) ? false : REFRESH_MS),
  })
  const [cancel, isCancelling] = useAction('The command was not cancelled', async () => {
    await call('POST /{domain_id}/clients/{client_id}/commands/{command_id}/cancel', { params })
    return 'Cancelled'
  })
  const cannot = cannotCancel ?? (result.data === undefined || isOpen(result.data) ? undefined : 'It has ended already')
  return (
    <Dialog
      title={result.data?.name ?? 'Command'}
      kind="wide"
      onClose={onClose}
      footer={
        <>
          <Button onClick={onClose}>Close</Button>
          <Button kind="danger" busy={isCancelling} disabledReason={cannot} onClick={() => void cancel()}>
            Cancel command
          </Button>
        </>
      }
    >
      <QueryView result={result} entity={`client:${client}`}>
        {(command) => (
          <>
            <Facts rows={factsOf(command, domain)} />
            {command.reason === undefined ? null : (
              <Notice tone={command.status === 'cancelled' ? 'plain' : 'warn'}>{command.reason}</Notice>
            )}
            <Json title="Payload" value={command.payload} />
            <Json title="Result" value={command.result} />
          </>
        )}
      </QueryView>
    </Dialog>
  )
}

function factsOf(command: Command, domain: string): (readonly [string, ReactNode] | undefined)[] {
  const { delivered_at: delivered, ended_at: ended, late_answer: late, created_by: by, task_id: task } = command
  return [
    ['Status', <CommandStatus key="status" status={command.status} />],
    [
      'Given',
      <span key="given">
        <Time at={command.created_at} />
        {by === undefined ? null : (
          <>
            {' by '}
            <UserName id={by} />
          </>
        )}
      </span>,
    ],
    ['Delivered', delivered === undefined ? 'not yet' : <Time key="delivered" at={delivered} />],
    ended === undefined
      ? ['Expires', <Time key="expires" at={command.expires_at} isAhead />]
      : ['Ended', <Time key="ended" at={ended} />],
    ['Time-out', command.timeout],
    task === undefined
      ? undefined
      : [
          'Answered by',
          <Link key="task" to={paths.run(domain, task, command.id)}>
            a run of a task, not by the device
          </Link>,
        ],
    late === undefined
      ? undefined
      : [
          'Late answer',
          <span key="late">
            {late.status}, <Time at={late.at} />: it changed nothing
          </span>,
        ],
    ['Id', <Id key="id" id={command.id} />],
  ]
}

function Json({ title, value }: { title: string; value: unknown }) {
  if (value === undefined) return null
  return (
    <div className="stack">
      <h3 className="small muted">{title}</h3>
      <Code label={title.toLowerCase()} wrap text={formatJson(value, 2)} />
    </div>
  )
}
