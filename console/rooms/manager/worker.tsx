/** One worker: its machine, its heartbeats, what it runs, its journal. */
import { useQuery } from '@tanstack/react-query'
import { Link, useNavigate } from '@tanstack/react-router'
import { useEffect } from 'react'
import type { Worker } from '../../api/operations.ts'
import { query } from '../../api/queries.ts'
import { Id } from '../../design/controls.tsx'
import { Card, Facts, Notice, Time, absoluteTime, formatBytes, formatDuration } from '../../design/display.tsx'
import { paths } from '../../paths.ts'
import { WorkerJournal } from '../../shell/entity-journal.tsx'
import { QueryView } from '../../shell/states.tsx'
import { Tabs } from '../../shell/tabs.tsx'
import { useDomainId, useParam } from '../../shell/url.ts'
import { WorkerMenu, WorkerState, useMayReadJournal } from './worker-list.tsx'

const REFRESH_MS = 2_000

export function WorkerScreen() {
  const id = useParam('id')
  const result = useQuery({
    ...query('GET /workers/{worker_id}', { params: { worker_id: id } }),
    refetchInterval: REFRESH_MS,
  })
  useEffect(() => {
    document.title = `${result.data?.name ?? 'Worker'} · Skein`
  }, [result.data?.name])
  return <QueryView result={result}>{(worker) => <Content worker={worker} />}</QueryView>
}

function Content({ worker }: { worker: Worker }) {
  const { id, name, domain_id: owner } = worker
  const domain = useDomainId()
  const tab = useParam('tab')
  const navigate = useNavigate()
  const mayReadJournal = useMayReadJournal(worker)
  const path = (one?: string) => (domain === '' ? paths.platformWorker(id, one) : paths.worker(domain, id, one))
  return (
    <>
      <div className="page-head">
        <h1 className="clip" dir="auto">
          {name}
        </h1>
        <WorkerState worker={worker} />
        <WorkerMenu
          worker={worker}
          onRemoved={() => void navigate({ to: domain === '' ? paths.platform() : paths.workers(domain) })}
        />
      </div>
      <Tabs
        label="Worker"
        tabs={[
          { key: 'about', name: 'About', to: path() },
          { key: 'journal', name: 'Journal', to: path('journal') },
        ]}
      />
      {tab === 'journal' ? (
        mayReadJournal ? (
          <WorkerJournal id={id} owner={owner} />
        ) : (
          <Notice tone="plain">
            This worker belongs to the platform. Administrators of the platform can read its journal.
          </Notice>
        )
      ) : (
        <About worker={worker} domain={domain} />
      )}
    </>
  )
}

function About({ worker, domain }: { worker: Worker; domain: string }) {
  const { slots, free_slots: free, labels = {}, cached_modules: cached } = worker
  return (
    <div className="grid">
      <Card title="Now" className="half">
        <Facts
          rows={[
            ['Free slots', slots === undefined ? String(free) : `${free} of ${slots}`],
            worker.task_count === undefined ? undefined : ['Runs', String(worker.task_count)],
            domain === ''
              ? undefined
              : [
                  'Earlier runs',
                  <Link key="runs" to={paths.runs(domain, { worker_id: worker.id })}>
                    Runs of the domain on this worker
                  </Link>,
                ],
            ['Last sign of life', <Time key="last" at={worker.last_alive_at ?? worker.alive_history?.at(-1)} />],
            ['Longest pause', longestPause(worker.alive_history ?? [])],
            cached === undefined ? undefined : ['Cached modules', String(cached.length)],
            worker.created_at === undefined ? undefined : ['Joined', absoluteTime(Date.parse(worker.created_at))],
          ]}
        />
      </Card>
      <Card title="Machine" className="half">
        <Facts
          rows={[
            ['Belongs to', worker.domain_id === undefined ? 'the platform' : 'the domain'],
            worker.cpu_cores === undefined ? undefined : ['Cores', String(worker.cpu_cores)],
            worker.memory_bytes === undefined ? undefined : ['Memory', formatBytes(worker.memory_bytes)],
            worker.os === undefined ? undefined : ['System', `${worker.os}, ${worker.arch ?? ''}`],
            worker.runtimes === undefined ? undefined : ['Modules', worker.runtimes.join(', ')],
            worker.isolation === undefined ? undefined : ['Isolation', worker.isolation],
            worker.version === undefined ? undefined : ['Version', worker.version],
            Object.keys(labels).length === 0
              ? undefined
              : [
                  'Labels',
                  <span key="labels">
                    {Object.entries(labels).map(([label, value]) => (
                      <span key={label} className="tag">
                        {label}={value}
                      </span>
                    ))}
                  </span>,
                ],
            ['Id', <Id key="id" id={worker.id} />],
          ]}
        />
      </Card>
    </div>
  )
}

/** Returns the longest pause between the last ten heartbeats, the newest of which are last. */
function longestPause(history: readonly string[]): string {
  const pauses = history.slice(1).map((at, index) => Date.parse(at) - Date.parse(history[index] ?? at))
  return pauses.length === 0 ? 'not known yet' : `${formatDuration(Math.max(...pauses))} between the last heartbeats`
}
