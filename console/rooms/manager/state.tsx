/** The state of a task: what its guests keep between runs. Values are read one at a time, and written with the version that was shown. */
import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { call } from '../../api/call.ts'
import { formatJson } from '../../api/json.ts'
import { query } from '../../api/queries.ts'
import type { Answer } from '../../api/call.ts'
import { Button, SelectField, TextArea, TextField } from '../../design/controls.tsx'
import { Empty, Time, formatBytes } from '../../design/display.tsx'
import { FormDialog } from '../../design/layers.tsx'
import { useFormAction } from '../../shell/action.ts'
import { Confirm } from '../../shell/confirm.tsx'
import { useDomainDenied } from '../../shell/permissions.ts'
import { QueryView } from '../../shell/states.tsx'
import { DataTable } from '../../shell/table.tsx'
import type { Column } from '../../shell/table.tsx'

const LIST = 'GET /tasks/{task_id}/state'
const VALUE = 'GET /tasks/{task_id}/state/{key}'
const REFRESH_MS = 5_000

type Key = Answer<typeof LIST>['keys'][number]
type Value = Answer<typeof VALUE>
type Encoding = Value['encoding']

const ENCODINGS: readonly (readonly [Encoding, string])[] = [
  ['utf-8', 'Text'],
  ['base64', 'Bytes as base64'],
]

const bucketOf = (client: string) => (client === '' ? {} : { client })

export function KeptState({ task, domain }: { task: string; domain: string }) {
  const params = { task_id: task }
  const denied = useDomainDenied(domain)('task_update')
  const [shown, setShown] = useState<Key | 'new'>()
  const [deleted, setDeleted] = useState<Key>()
  const close = () => setShown(undefined)
  return (
    <>
      <p className="muted">
        What the runs of this task keep for later ones. A write here repeats the runs that have read the value and have
        not ended.
      </p>
      <p>
        <Button icon="plus" disabledReason={denied} onClick={() => setShown('new')}>
          Set a key
        </Button>
      </p>
      <DataTable<Key>
        label="State"
        queryKey={[LIST, params]}
        refetchMs={REFRESH_MS}
        fetchPage={async ({ signal, ...page }) => {
          const { total, keys: rows } = await call(LIST, { params, query: page, signal })
          return { total, rows }
        }}
        rowId={({ client, key }) => formatJson([client, key])}
        columns={columnsOf({ denied, onShow: setShown, onDelete: setDeleted })}
        empty={
          <Empty icon="code" title="No state">
            A module that imports state functions writes keys here when its runs complete.
          </Empty>
        }
      />
      {shown === 'new' ? <Edit task={task} value={undefined} denied={denied} onClose={close} /> : null}
      {shown === undefined || shown === 'new' ? null : <Look task={task} row={shown} denied={denied} onClose={close} />}
      {deleted === undefined ? null : (
        <Delete task={task} row={deleted} denied={denied} onClose={() => setDeleted(undefined)} />
      )}
    </>
  )
}

type Actions = { denied: string | undefined; onShow: (row: Key) => void; onDelete: (row: Key) => void }

const columnsOf = ({ denied, onShow, onDelete }: Actions): readonly Column<Key>[] => [
  {
    key: 'key',
    title: 'Key',
    width: 'minmax(120px, 2fr)',
    cell: (row) => (
      <Button kind="quiet" onClick={() => onShow(row)}>
        {row.key}
      </Button>
    ),
  },
  {
    key: 'client',
    title: 'Client',
    width: 'minmax(90px, 1fr)',
    isMinor: true,
    cell: ({ client }) => (client === '' ? <span className="muted">of the task</span> : <code>{client}</code>),
  },
  { key: 'size', title: 'Size', width: '90px', cell: ({ size }) => formatBytes(size) },
  { key: 'at', title: 'Written', width: '90px', cell: ({ updated_at: at }) => <Time at={at} /> },
  {
    key: 'delete',
    title: '',
    width: '44px',
    cell: (row) => (
      <Button
        kind="quiet"
        icon="trash"
        label={`Delete ${row.key}`}
        disabledReason={denied}
        onClick={() => onDelete(row)}
      />
    ),
  },
]

type DialogOf = { task: string; denied: string | undefined; onClose: () => void }

function Look({ task, row, denied, onClose }: DialogOf & { row: Key }) {
  const input = { params: { task_id: task, key: row.key }, query: bucketOf(row.client) }
  const result = useQuery({ ...query(VALUE, input), staleTime: Infinity, gcTime: 0 })
  return (
    <QueryView result={result}>
      {(value) => <Edit task={task} value={value} denied={denied} onClose={onClose} />}
    </QueryView>
  )
}

/** `value` undefined: of a new key. */
function Edit({ task, value, denied, onClose }: DialogOf & { value: Value | undefined }) {
  // What is edited stays when the list is read again.
  const [before] = useState(value)
  const [key, setKey] = useState(before?.key ?? '')
  const [client, setClient] = useState(before?.client ?? '')
  const [text, setText] = useState(before?.value ?? '')
  const [encoding, setEncoding] = useState<Encoding>(before?.encoding ?? 'utf-8')
  const save = useFormAction(
    'The value was not set',
    async () => {
      await call('PUT /tasks/{task_id}/state/{key}', {
        params: { task_id: task, key },
        query: bucketOf(client),
        body: { value: text, encoding, version: before?.version ?? 0 },
      })
      return 'Set'
    },
    onClose,
  )
  const disabledReason = denied ?? (key === '' ? 'Enter a key first' : undefined)
  return (
    <FormDialog
      title={before === undefined ? 'Set a key' : before.key}
      submit="Set"
      action={save}
      disabledReason={disabledReason}
      onClose={onClose}
    >
      {before === undefined ? (
        <>
          <TextField label="Key" field="key" value={key} onChange={setKey} autoComplete="off" />
          <TextField
            label="Client"
            field="client"
            hint="Empty: the bucket of the task"
            value={client}
            onChange={setClient}
            autoComplete="off"
          />
        </>
      ) : null}
      <SelectField
        label="Form"
        value={encoding}
        onChange={(chosen) => setEncoding(chosen as Encoding)}
        options={ENCODINGS}
      />
      <TextArea label="Value" field="value" value={text} onChange={setText} />
    </FormDialog>
  )
}

function Delete({ task, row, denied, onClose }: DialogOf & { row: Key }) {
  const remove = useFormAction(
    'The key was not deleted',
    async () => {
      await call('DELETE /tasks/{task_id}/state/{key}', {
        params: { task_id: task, key: row.key },
        query: { ...bucketOf(row.client), version: row.version },
      })
      return 'The key is deleted'
    },
    onClose,
  )
  return (
    <Confirm title={`Delete ${row.key}`} submit="Delete key" action={remove} disabledReason={denied} onClose={onClose}>
      Its next run finds no value. This cannot be undone.
    </Confirm>
  )
}
