/** Workers: slots, signs of life, labels, drain and join. */
import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { apiBase } from '../../api/base.ts'
import { call } from '../../api/call.ts'
import { query } from '../../api/queries.ts'
import { Button, Code, Menu } from '../../design/controls.tsx'
import { Card, Empty, Notice, State, Time, formatBytes, formatCount } from '../../design/display.tsx'
import { Dialog } from '../../design/layers.tsx'
import { useAction } from '../../shell/action.ts'
import { Confirm } from '../../shell/confirm.tsx'
import { JournalDrawer } from '../../shell/entity-journal.tsx'
import { QueryView } from '../../shell/states.tsx'

const REFRESH_MS = 2_000
const STATES = {
  alive: ['ok', 'Alive'],
  draining: ['warn', 'Draining'],
  dead: ['bad', 'Dead'],
  revoked: ['idle', 'Revoked'],
} as const

/** `domain`: where a new worker joins; undefined: the platform. */
export function WorkerList({ domain }: { domain: string | undefined }) {
  const result = useQuery({ ...query('GET /workers', { query: { limit: 100 } }), refetchInterval: REFRESH_MS })
  const [joining, setJoining] = useState<{ token: string; expires: string }>()
  const [removed, setRemoved] = useState<{ id: string; name: string }>()
  const [examined, setExamined] = useState<{ id: string; name: string; domain: string }>()
  const [join, isJoining] = useAction('No token was made', async () => {
    const made = await call('POST /workers/tokens', { body: domain === undefined ? {} : { domain_id: domain } })
    setJoining({ token: made.token, expires: made.expires_at })
  })
  const [drain] = useAction('The worker was not changed', async (id: string, isDraining: boolean) => {
    if (isDraining) await call('POST /workers/{worker_id}/resume', { params: { worker_id: id } })
    else await call('POST /workers/{worker_id}/drain', { params: { worker_id: id } })
    return isDraining ? 'It takes runs again' : 'It takes no new runs'
  })
  const [remove, isRemoving] = useAction('The worker was not removed', async (id: string) => {
    await call('DELETE /workers/{worker_id}', { params: { worker_id: id } })
    setRemoved(undefined)
    return 'Removed'
  })
  return (
    <QueryView result={result}>
      {({ workers, total }) => (
        <Card
          flush
          title={`${formatCount(total)} ${total === 1 ? 'worker' : 'workers'}`}
          actions={
            <Button icon="plus" busy={isJoining} onClick={() => void join()}>
              Join a worker
            </Button>
          }
        >
          {workers.length === 0 ? (
            <Empty icon="worker" title="No workers">
              Tasks wait until a worker joins.
            </Empty>
          ) : (
            <div className="scroll-x" tabIndex={0} role="region" aria-label="Workers">
              <table className="plain">
                <thead>
                  <tr>
                    <th>Name</th>
                    <th>State</th>
                    <th className="right">Free slots</th>
                    <th>Last sign of life</th>
                    <th>Isolation</th>
                    <th>Machine</th>
                    <th>Labels</th>
                    <th>
                      <span className="visually-hidden">Actions</span>
                    </th>
                  </tr>
                </thead>
                <tbody>
                  {workers.map((worker) => {
                    const [tone, word] = STATES[worker.state ?? (worker.alive ? 'alive' : 'dead')]
                    const isDraining = worker.state === 'draining'
                    const { id, name, domain_id: owner } = worker
                    return (
                      <tr key={worker.id}>
                        <td>
                          <span title={worker.id}>{worker.name}</span>
                          {worker.domain_id === undefined ? <div className="muted small">of the platform</div> : null}
                        </td>
                        <td>
                          <State tone={tone}>{word}</State>
                        </td>
                        <td className="right">
                          {worker.free_slots}
                          {worker.slots === undefined ? '' : ` of ${worker.slots}`}
                        </td>
                        <td>
                          <Time at={worker.last_alive_at} />
                        </td>
                        <td>{worker.isolation ?? ''}</td>
                        <td>
                          {worker.cpu_cores === undefined ? null : `${worker.cpu_cores} cores`}
                          {worker.memory_bytes === undefined ? null : (
                            <div className="muted small">{formatBytes(worker.memory_bytes)}</div>
                          )}
                        </td>
                        <td>
                          {Object.entries(worker.labels ?? {}).map(([name, value]) => (
                            <span key={name} className="tag">
                              {name}={value}
                            </span>
                          ))}
                        </td>
                        <td>
                          <Menu
                            label={`Actions for ${worker.name}`}
                            icon="more"
                            items={[
                              {
                                label: isDraining ? 'Resume' : 'Drain',
                                icon: isDraining ? 'play' : 'pause',
                                onSelect: () => void drain(worker.id, isDraining),
                              },
                              // The journal of a worker of the platform belongs to no domain: its changes are with their users.
                              ...(owner === undefined
                                ? []
                                : [
                                    {
                                      label: 'Journal',
                                      icon: 'journal' as const,
                                      onSelect: () => setExamined({ id, name, domain: owner }),
                                    },
                                  ]),
                              {
                                label: 'Remove',
                                icon: 'trash',
                                isDanger: true,
                                onSelect: () => setRemoved({ id, name }),
                              },
                            ]}
                          />
                        </td>
                      </tr>
                    )
                  })}
                </tbody>
              </table>
            </div>
          )}
          {joining === undefined ? null : (
            <Dialog title="Join a worker" kind="wide" onClose={() => setJoining(undefined)}>
              <p>
                Run this on the machine of the worker. The token is valid once, until <Time at={joining.expires} />, and
                is not shown again.
              </p>
              <Code label="token" wrap text={joining.token} />
              <Code
                label="command"
                wrap
                text={`SKEIN_WORKER_MANAGER=${apiBase.hostname}:7071 SKEIN_WORKER_TOKEN='<token>' npm run worker`}
              />
              <Notice tone="plain">
                Use the address under which that machine reaches the gRPC port of the task manager.
              </Notice>
            </Dialog>
          )}
          {examined === undefined ? null : (
            <JournalDrawer type="worker" {...examined} onClose={() => setExamined(undefined)} />
          )}
          {removed === undefined ? null : (
            <Confirm
              title={`Remove ${removed.name}`}
              submit="Remove worker"
              busy={isRemoving}
              onClose={() => setRemoved(undefined)}
              onConfirm={() => void remove(removed.id)}
            >
              Stop its program first; otherwise it joins again with a new id. A worker with runs is not removed.
            </Confirm>
          )}
        </Card>
      )}
    </QueryView>
  )
}
