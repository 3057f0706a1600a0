/** Workers: slots, signs of life, labels, drain and join. */
import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { useState } from 'react'
import { call } from '../../api/call.ts'
import type { Worker } from '../../api/operations.ts'
import { query } from '../../api/queries.ts'
import { Button, Code, Menu } from '../../design/controls.tsx'
import { Card, Empty, Notice, State, Time, formatBytes, formatCount } from '../../design/display.tsx'
import { Dialog } from '../../design/layers.tsx'
import { paths } from '../../paths.ts'
import { useAction, useFormAction } from '../../shell/action.ts'
import { Confirm } from '../../shell/confirm.tsx'
import { JournalDrawer, WorkerJournal } from '../../shell/entity-journal.tsx'
import { useDomainDenied } from '../../shell/permissions.ts'
import { useSession } from '../../shell/session.ts'
import { QueryView } from '../../shell/states.tsx'

const REFRESH_MS = 2_000
const STATES = {
  alive: ['ok', 'Alive'],
  draining: ['warn', 'Draining'],
  dead: ['bad', 'Dead'],
  revoked: ['idle', 'Revoked'],
} as const

export function WorkerState({ worker }: { worker: Pick<Worker, 'state' | 'alive'> }) {
  const [tone, word] = STATES[worker.state ?? (worker.alive ? 'alive' : 'dead')]
  return <State tone={tone}>{word}</State>
}

/** Administrators of the platform alone read the journal of a worker that belongs to no domain. */
export function useMayReadJournal({ domain_id: owner }: Pick<Worker, 'domain_id'>): boolean {
  const session = useSession()
  return owner !== undefined || (session.kind === 'signed-in' && session.role === 'admin')
}

/** Why the user may neither drain nor remove a worker. */
function useCannotManage({ domain_id: owner }: Pick<Worker, 'domain_id'>): string | undefined {
  const session = useSession()
  const reason = useDomainDenied(owner)('worker_manage')
  if (owner !== undefined) return reason
  return session.kind === 'signed-in' && session.role === 'admin'
    ? undefined
    : 'It belongs to the platform, whose administrators manage it'
}

export function WorkerMenu({ worker, onRemoved }: { worker: Worker; onRemoved?: () => void }) {
  const [dialog, setDialog] = useState<'journal' | 'remove'>()
  const mayReadJournal = useMayReadJournal(worker)
  const cannotManage = useCannotManage(worker)
  const { id, name, domain_id: owner } = worker
  const isDraining = worker.state === 'draining'
  const params = { worker_id: id }
  const [drain] = useAction('The worker was not changed', async () => {
    if (isDraining) await call('POST /workers/{worker_id}/resume', { params })
    else await call('POST /workers/{worker_id}/drain', { params })
    return isDraining ? 'It takes runs again' : 'It takes no new runs'
  })
  const remove = useFormAction('The worker was not removed', async () => {
    await call('DELETE /workers/{worker_id}', { params })
    setDialog(undefined)
    onRemoved?.()
    return 'Removed'
  })
  return (
    <>
      <Menu
        label={`Actions for ${name}`}
        icon="more"
        items={[
          {
            label: isDraining ? 'Resume' : 'Drain',
            icon: isDraining ? 'play' : 'pause',
            disabledReason: cannotManage,
            onSelect: () => void drain(),
          },
          {
            label: 'Journal',
            icon: 'journal',
            disabledReason: mayReadJournal
              ? undefined
              : 'It belongs to the platform, whose administrators read its journal',
            onSelect: () => setDialog('journal'),
          },
          {
            label: 'Remove',
            icon: 'trash',
            isDanger: true,
            disabledReason: cannotManage,
            onSelect: () => setDialog('remove'),
          },
        ]}
      />
      {dialog === 'journal' ? (
        <JournalDrawer name={name} onClose={() => setDialog(undefined)}>
          <WorkerJournal id={id} owner={owner} />
        </JournalDrawer>
      ) : null}
      {dialog === 'remove' ? (
        <Confirm title={`Remove ${name}`} submit="Remove worker" action={remove} onClose={() => setDialog(undefined)}>
          Stop its program first; otherwise it joins again with a new id. A worker with runs is not removed.
        </Confirm>
      ) : null}
    </>
  )
}

/** `domain`: where a new worker joins; undefined: the platform. */
export function WorkerList({ domain }: { domain: string | undefined }) {
  const result = useQuery({ ...query('GET /workers', { query: { limit: 100 } }), refetchInterval: REFRESH_MS })
  const cannotJoin = useDomainDenied(domain)('worker_manage')
  const [joining, setJoining] = useState<{ token: string; expires: string }>()
  const [join, isJoining] = useAction('No token was made', async () => {
    const made = await call('POST /workers/tokens', { body: domain === undefined ? {} : { domain_id: domain } })
    setJoining({ token: made.token, expires: made.expires_at })
  })
  return (
    <QueryView result={result}>
      {({ workers, total }) => (
        <Card
          flush
          title={`${formatCount(total)} ${total === 1 ? 'worker' : 'workers'}`}
          actions={
            <Button icon="plus" busy={isJoining} disabledReason={cannotJoin} onClick={() => void join()}>
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
                    const to = domain === undefined ? paths.platformWorker(worker.id) : paths.worker(domain, worker.id)
                    return (
                      <tr key={worker.id}>
                        <td>
                          <Link to={to}>{worker.name}</Link>
                          {worker.domain_id === undefined ? <div className="muted small">of the platform</div> : null}
                        </td>
                        <td>
                          <WorkerState worker={worker} />
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
                          <WorkerMenu worker={worker} />
                        </td>
                      </tr>
                    )
                  })}
                </tbody>
              </table>
            </div>
          )}
          {joining === undefined ? null : <Join {...joining} onClose={() => setJoining(undefined)} />}
        </Card>
      )}
    </QueryView>
  )
}

const LOOPBACK = /^(?:127\.\d+\.\d+\.\d+|\[::1\]|localhost):/

function Join({ token, expires, onClose }: { token: string; expires: string; onClose: () => void }) {
  const { data } = useQuery({ ...query('GET /connect'), staleTime: Infinity })
  const address = data?.workers?.address
  return (
    <Dialog title="Join a worker" kind="wide" onClose={onClose}>
      <p>
        Run this on the machine of the worker. The token is valid once, expires <Time at={expires} isAhead />, and is
        not shown again.
      </p>
      <Code label="token" wrap text={token} />
      <Code
        label="command"
        wrap
        text={`SKEIN_WORKER_MANAGER=${address ?? 'HOST:PORT'} SKEIN_WORKER_TOKEN='<token>' npm run worker`}
      />
      {data === undefined || (address !== undefined && !LOOPBACK.test(address)) ? null : (
        <Notice tone="plain">
          {address === undefined
            ? 'The address of the task manager is not known here: use the one under which that machine reaches its gRPC port.'
            : 'This address leads to the machine of the platform alone. For a worker on another machine, use the name of this one; SKEIN_PUBLIC_URL or SKEIN_GRPC_PUBLIC_ADDRESS sets it.'}
        </Notice>
      )}
    </Dialog>
  )
}
