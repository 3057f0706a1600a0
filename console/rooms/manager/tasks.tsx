/** Tasks of a domain. */
import { Link, useNavigate } from '@tanstack/react-router'
import { useEffect, useState } from 'react'
import { call } from '../../api/call.ts'
import type { Input } from '../../api/call.ts'
import type { Task } from '../../api/operations.ts'
import { Button, SelectField, TextField } from '../../design/controls.tsx'
import { Card, Empty, Time } from '../../design/display.tsx'
import { FormDialog } from '../../design/layers.tsx'
import { paths } from '../../paths.ts'
import { useFormAction } from '../../shell/action.ts'
import { Filters } from '../../shell/filters.tsx'
import { DataTable } from '../../shell/table.tsx'
import { TaskActivity, stateWord } from '../../shell/task-state.tsx'
import { useDomainDenied } from '../../shell/permissions.ts'
import { useDomainId, useView, useViews } from '../../shell/url.ts'
import { ModuleDrop } from './upload.tsx'

const REFRESH_MS = 4_000
const STATES = [0, 1, 2, 3, 4, 5, 6, 7]

type ListedTask = Omit<Task, 'module'>

export function Tasks() {
  const domain = useDomainId()
  const cannotCreate = useDomainDenied(domain)('task_create')
  const [views, setViews] = useViews()
  const [dialog, setDialog] = useView('create')
  const state = STATES.find((one) => stateWord(one).toLowerCase() === views['state'])
  const filters = {
    name: views['name'],
    state,
    trigger: views['starts'] === undefined ? undefined : views['starts'] === 'on messages',
    domain_id: domain,
  }
  useEffect(() => {
    document.title = 'Tasks · Skein'
  }, [])
  const hasFilter = ['name', 'state', 'starts'].some((name) => views[name] !== undefined)
  return (
    <>
      <div className="page-head">
        <h1 className="grow">Tasks</h1>
        <Link className="button" to={paths.tryModule(domain)}>
          Try a module
        </Link>
        <Button kind="primary" icon="plus" disabledReason={cannotCreate} onClick={() => setDialog('1')}>
          New task
        </Button>
      </div>
      <Filters
        fields={[
          { name: 'state', label: 'State', options: STATES.map((one) => stateWord(one).toLowerCase()) },
          { name: 'starts', label: 'Starts', options: ['on messages', 'otherwise'] },
        ]}
      />
      <DataTable<ListedTask>
        label="Tasks"
        queryKey={['GET /tasks', filters]}
        refetchMs={REFRESH_MS}
        fetchPage={async ({ signal, ...page }) => {
          const found = await call('GET /tasks', { query: { ...filters, ...page }, signal })
          return { total: found.total, rows: found.tasks }
        }}
        rowId={({ id }) => id}
        hrefOf={({ id }) => paths.task(domain, id)}
        columns={[
          {
            key: 'name',
            title: 'Name',
            width: 'minmax(160px, 2fr)',
            cell: ({ id, name }) => (
              <Link className="main" dir="auto" tabIndex={-1} to={paths.task(domain, id)}>
                {name}
              </Link>
            ),
          },
          {
            key: 'state',
            title: 'State',
            width: '120px',
            cell: ({ state: one, activity }) => <TaskActivity state={one} activity={activity} />,
          },
          {
            key: 'starts',
            title: 'Starts',
            width: 'minmax(100px, 1fr)',
            isMinor: true,
            cell: (task) => startsOf(task),
          },
          {
            key: 'end',
            title: 'Last end',
            width: '120px',
            isMinor: true,
            cell: ({ finish_time: at, last_run: run }) => <Time at={run?.at ?? at} />,
          },
          {
            key: 'changed',
            title: 'Changed',
            width: '120px',
            isMinor: true,
            cell: ({ updated_at: at }) => <Time at={at} />,
          },
        ]}
        empty={
          <Card>
            {hasFilter ? (
              <Empty
                icon="search"
                title="No task matches"
                actions={<Button onClick={() => setViews({ name: '', state: '', starts: '' })}>Clear filters</Button>}
              />
            ) : (
              <Empty
                icon="task"
                title="No tasks yet"
                actions={
                  <Button kind="primary" icon="plus" disabledReason={cannotCreate} onClick={() => setDialog('1')}>
                    New task
                  </Button>
                }
              >
                A task is a WebAssembly module with rules for its execution: by hand, on a schedule, or for each message
                of a channel.
              </Empty>
            )}
          </Card>
        }
      />
      {dialog === '' || cannotCreate !== undefined ? null : <NewTask domain={domain} onClose={() => setDialog('')} />}
    </>
  )
}

export function startsOf({
  schedule,
  trigger,
  answers,
  daemon,
}: Pick<Task, 'schedule' | 'trigger' | 'answers' | 'daemon'>): string {
  if (trigger !== undefined) return 'on messages'
  if (answers !== undefined) return 'on commands'
  if (schedule !== undefined && schedule !== '') return `at ${schedule}`
  return daemon ? 'always' : 'by hand'
}

function NewTask({ domain, onClose }: { domain: string; onClose: () => void }) {
  const navigate = useNavigate()
  const [name, setName] = useState('')
  const [file, setFile] = useState<File>()
  const [source, setSource] = useState<'file' | 'reference'>('file')
  const [reference, setReference] = useState('')
  const create = useFormAction('The task was not created', async () => {
    const task = await createTask(
      {
        name: name.trim(),
        domain_id: domain,
        ...(source === 'reference' ? { image_url: reference.trim() } : {}),
      },
      source === 'file' ? file : undefined,
    )
    await navigate({ to: paths.task(domain, task.id) })
  })
  const missing =
    source === 'file' ? file === undefined && 'Choose a module' : reference.trim() === '' && 'Name a reference'
  return (
    <FormDialog
      title="New task"
      submit="Create task"
      action={create}
      onClose={onClose}
      disabledReason={missing === false ? undefined : missing}
    >
      <TextField label="Name" field="name" value={name} onChange={setName} autoFocus required />
      <SelectField
        label="Module"
        value={source}
        onChange={(value) => setSource(value as 'file' | 'reference')}
        options={[
          ['file', 'a file'],
          ['reference', 'from a registry'],
        ]}
      />
      {source === 'file' ? (
        <ModuleDrop
          file={file}
          onFile={(chosen) => {
            setFile(chosen)
            if (name === '') setName(chosen.name.replace(/\.wasm$/, ''))
          }}
        />
      ) : (
        <TextField
          label="Reference"
          field="image_url"
          value={reference}
          onChange={setReference}
          placeholder="registry.example.com/modules/filter:1.2"
        />
      )}
    </FormDialog>
  )
}

/** A task without its module is not left behind. */
export async function createTask(body: Input<'POST /tasks'>['body'], file: File | undefined): Promise<{ id: string }> {
  const task = await call('POST /tasks', { body })
  try {
    if (file !== undefined) await uploadModule(task.id, file)
  } catch (error) {
    await call('DELETE /tasks/{task_id}', { params: { task_id: task.id } }).catch(() => undefined)
    throw error
  }
  return task
}

export async function uploadModule(task: string, file: File): Promise<void> {
  const form = new FormData()
  form.append('file', file, file.name)
  await call('PUT /tasks/{task_id}/upload', { params: { task_id: task }, body: form })
}
