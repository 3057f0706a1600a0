/** Workflows of a domain, and one workflow as a graph and a table. */
import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate } from '@tanstack/react-router'
import { useEffect, useState } from 'react'
import { call } from '../../api/call.ts'
import type { Answer } from '../../api/call.ts'
import { query } from '../../api/queries.ts'
import { Button, Menu } from '../../design/controls.tsx'
import { Card, Empty, Notice, Time } from '../../design/display.tsx'
import { paths } from '../../paths.ts'
import { useAction, useFormAction } from '../../shell/action.ts'
import { Confirm } from '../../shell/confirm.tsx'
import { EntityJournal, JournalDrawer } from '../../shell/entity-journal.tsx'
import { Filters } from '../../shell/filters.tsx'
import { QueryView } from '../../shell/states.tsx'
import { DataTable } from '../../shell/table.tsx'
import { TaskState } from '../../shell/task-state.tsx'
import { useDomainDenied } from '../../shell/permissions.ts'
import { useDomainId, useParam, useView, useViews } from '../../shell/url.ts'
import { NewWorkflow } from './workflow-dialog.tsx'
import { WorkflowGraph } from './workflow-graph.tsx'

const REFRESH_MS = 2_500
type ListedWorkflow = Answer<'GET /workflows'>['workflows'][number]

export function Workflows() {
  const domain = useDomainId()
  const cannotCreate = useDomainDenied(domain)('task_create')
  const [dialog, setDialog] = useView('create')
  const [views, setViews] = useViews()
  const filters = { domain_id: domain, name: views['name'] }
  useEffect(() => {
    document.title = 'Workflows · Skein'
  }, [])
  const create = (
    <Button kind="primary" icon="plus" disabledReason={cannotCreate} onClick={() => setDialog('1')}>
      New workflow
    </Button>
  )
  return (
    <>
      <div className="page-head">
        <h1 className="grow">Workflows</h1>
        {create}
      </div>
      <Filters fields={[]} />
      <DataTable<ListedWorkflow>
        label="Workflows"
        queryKey={['GET /workflows', filters]}
        refetchMs={REFRESH_MS}
        fetchPage={async ({ signal, ...page }) => {
          const found = await call('GET /workflows', { query: { ...filters, ...page }, signal })
          return { total: found.total, rows: found.workflows }
        }}
        rowId={({ id }) => id}
        hrefOf={({ id }) => paths.workflow(domain, id)}
        columns={[
          {
            key: 'name',
            title: 'Name',
            width: 'minmax(160px, 2fr)',
            cell: ({ id, name }) => (
              <Link className="main" dir="auto" tabIndex={-1} to={paths.workflow(domain, id)}>
                {name}
              </Link>
            ),
          },
          { key: 'state', title: 'State', width: '120px', cell: ({ state }) => <TaskState state={state} /> },
          { key: 'created', title: 'Created', width: '110px', cell: ({ created_at: at }) => <Time at={at} /> },
        ]}
        empty={
          <Card>
            {filters.name === undefined ? (
              <Empty icon="workflow" title="No workflows yet" actions={create}>
                A workflow runs tasks in an order, hands results on, and reacts to failures.
              </Empty>
            ) : (
              <Empty
                icon="search"
                title="No workflow matches"
                actions={<Button onClick={() => setViews({ name: '' })}>Clear the filter</Button>}
              />
            )}
          </Card>
        }
      />
      {dialog === '' || cannotCreate !== undefined ? null : (
        <NewWorkflow domain={domain} onClose={() => setDialog('')} />
      )}
    </>
  )
}

export function WorkflowScreen() {
  const domain = useDomainId()
  const id = useParam('id')
  const navigate = useNavigate()
  const params = { workflow_id: id }
  const [dialog, setDialog] = useState<'journal' | 'delete'>()
  const denied = useDomainDenied(domain)
  const result = useQuery({ ...query('GET /workflows/{workflow_id}', { params }), refetchInterval: REFRESH_MS })
  const [start, isStarting] = useAction('The workflow was not started', async () => {
    await call('POST /workflows/{workflow_id}/start', { params })
  })
  const [stop, isStopping] = useAction('The workflow was not stopped', async () => {
    await call('POST /workflows/{workflow_id}/stop', { params })
  })
  const remove = useFormAction('The workflow was not deleted', async () => {
    await call('DELETE /workflows/{workflow_id}', { params })
    await navigate({ to: paths.workflows(domain) })
    return 'The workflow is deleted'
  })
  useEffect(() => {
    document.title = `${result.data?.name ?? 'Workflow'} · Skein`
  }, [result.data?.name])
  return (
    <QueryView result={result}>
      {(workflow) => {
        const isRunning = workflow.state === 1 || workflow.state === 2
        const withoutModule = workflow.tasks.filter((task) => task.module === undefined && task.image_url === undefined)
        return (
          <>
            <div className="page-head">
              <h1 className="clip" dir="auto">
                {workflow.name}
              </h1>
              <TaskState state={workflow.state} />
              <span className="grow" />
              {isRunning ? (
                <Button icon="stop" busy={isStopping} disabledReason={denied('task_start')} onClick={() => void stop()}>
                  Stop
                </Button>
              ) : (
                <Button
                  icon="play"
                  kind="primary"
                  busy={isStarting}
                  onClick={() => void start()}
                  disabledReason={
                    denied('task_start') ??
                    (withoutModule.length > 0 ? `${withoutModule.length} tasks have no module yet` : undefined)
                  }
                >
                  Start
                </Button>
              )}
              <Menu
                label="More actions"
                icon="more"
                items={[
                  { label: 'Journal', icon: 'journal', onSelect: () => setDialog('journal') },
                  'line',
                  {
                    label: 'Delete',
                    icon: 'trash',
                    isDanger: true,
                    disabledReason: denied('task_delete'),
                    onSelect: () => setDialog('delete'),
                  },
                ]}
              />
            </div>
            {withoutModule.length === 0 ? null : (
              <Notice tone="warn">
                Tasks without a module: {withoutModule.map(({ name }) => name).join(', ')}. Upload one on the page of
                each.
              </Notice>
            )}
            <Card title="Graph">
              <WorkflowGraph tasks={workflow.tasks} />
            </Card>
            <Card title="Tasks" flush>
              <div className="scroll-x" tabIndex={0} role="region" aria-label="Tasks">
                <table className="plain">
                  <thead>
                    <tr>
                      <th>Name</th>
                      <th>State</th>
                      <th>After</th>
                      <th>Runs on</th>
                      <th>Error</th>
                    </tr>
                  </thead>
                  <tbody>
                    {workflow.tasks.map((task) => (
                      <tr key={task.id}>
                        <td>
                          <Link to={paths.task(domain, task.id)}>{task.name}</Link>
                        </td>
                        <td>
                          <TaskState state={task.state} />
                        </td>
                        <td>{(task.depends_on ?? []).join(', ')}</td>
                        <td>
                          {task.depends_on === undefined || task.depends_on.length === 0
                            ? ''
                            : (task.run_if ?? 'success')}
                        </td>
                        <td>{task.error ?? ''}</td>
                      </tr>
                    ))}
                  </tbody>
                </table>
              </div>
            </Card>
            {dialog === 'journal' ? (
              <JournalDrawer name={workflow.name} onClose={() => setDialog(undefined)}>
                <EntityJournal domain={domain} type="workflow" id={id} />
              </JournalDrawer>
            ) : null}
            {dialog === 'delete' ? (
              <Confirm
                title={`Delete ${workflow.name}`}
                submit="Delete workflow"
                action={remove}
                onClose={() => setDialog(undefined)}
              >
                Its tasks and their results are deleted. This cannot be undone.
              </Confirm>
            ) : null}
          </>
        )
      }}
    </QueryView>
  )
}
