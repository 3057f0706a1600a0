/** What a run writes, as it writes it. For a task, it is what the newest run writes, and then the next one. */
import { useQuery } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import { Fragment, useEffect, useRef, useState } from 'react'
import type { ApiError } from '../../api/errors.ts'
import { followStream } from '../../api/event-stream.ts'
import type { StreamState } from '../../api/event-stream.ts'
import { parseJson } from '../../api/json.ts'
import { query } from '../../api/queries.ts'
import { recordRequest } from '../../api/requests.ts'
import { Button } from '../../design/controls.tsx'
import { Card, Empty, State } from '../../design/display.tsx'
import { paths } from '../../paths.ts'
import { ErrorState, QueryView } from '../../shell/states.tsx'

type Part = { id: number; stream: string; text: string; run: string }
const MAX_PARTS = 2_000
const RUN_DIGITS = 12
/** A run that begins is followed within this time. */
const NEXT_RUN_MS = 1_500

/** The output of the newest run of a task. When another one begins, its output follows below. */
export function TaskOutput({ domain, task }: { domain: string; task: string }) {
  const result = useQuery({
    ...query('GET /tasks/{task_id}/runs', { params: { task_id: task }, query: { limit: 1 } }),
    refetchInterval: NEXT_RUN_MS,
  })
  return (
    <QueryView result={result}>
      {({ runs: [newest] }) =>
        newest === undefined ? (
          <Card>
            <Empty icon="file" title="It has not run yet">
              The output of its next run appears here.
            </Empty>
          </Card>
        ) : (
          <LogView task={task} run={newest.id} domain={domain} isContinued />
        )
      }
    </QueryView>
  )
}

/** `isContinued`: when another run is given, the output of the one before stays above. */
export function LogView({
  task,
  run,
  domain,
  isContinued = false,
}: {
  task: string
  run: string
  domain: string
  isContinued?: boolean
}) {
  const nextId = useRef(0)
  const [parts, setParts] = useState<readonly Part[]>([])
  const [state, setState] = useState<StreamState>('connecting')
  const [error, setError] = useState<ApiError>()
  const [isFollowing, setFollowing] = useState(true)
  const place = useRef<HTMLDivElement>(null)
  useEffect(() => {
    const stop = new AbortController()
    const path = `tasks/${task}/logs?follow=true&run_id=${run}`
    recordRequest({ method: 'GET', path, body: undefined })
    if (!isContinued) setParts([])
    void followStream({
      path,
      signal: stop.signal,
      isFinite: true,
      onState: (now, failure) => {
        setState(now)
        setError(failure)
      },
      onEvent: ({ event, data }) => {
        const { text = '' } = parseJson(data) as { text?: string }
        const part = { id: nextId.current++, stream: event, text, run }
        setParts((before) => [...before.slice(-MAX_PARTS), part])
      },
    })
    return () => stop.abort()
  }, [task, run, isContinued])
  useEffect(() => {
    if (isFollowing && place.current !== null) place.current.scrollTop = place.current.scrollHeight
  }, [parts, isFollowing])
  if (error?.status === 404 || (!isContinued && state === 'ended' && error === undefined && parts.length === 0))
    return (
      <Card>
        <Empty icon="file" title="No output">
          What the module writes to its standard output and error appears here.
        </Empty>
      </Card>
    )
  if (state === 'ended' && error !== undefined) return <ErrorState error={error} />
  return (
    <Card
      title={
        <State tone={state === 'open' ? 'ok' : state === 'ended' ? 'idle' : 'active'}>
          {state === 'open'
            ? 'Live'
            : state !== 'ended'
              ? 'Connecting'
              : isContinued
                ? 'The run has ended. The next one follows here'
                : 'The run has ended'}
        </State>
      }
      actions={
        <Button small pressed={isFollowing} onClick={() => setFollowing(!isFollowing)}>
          Follow the end
        </Button>
      }
    >
      <div className="log" ref={place} tabIndex={0} role="log" aria-label="Output">
        {parts.length === 0 ? <span className="muted">Nothing is written yet.</span> : null}
        {parts.map(({ id, stream, text, run: its }, at) => (
          <Fragment key={id}>
            {isContinued && its !== parts[at - 1]?.run ? (
              <div className="muted">
                Run <Link to={paths.run(domain, task, its)}>{its.slice(-RUN_DIGITS)}</Link>
              </div>
            ) : null}
            <span className={stream === 'stderr' ? 'err' : stream === 'http' ? 'muted' : ''}>{text}</span>
          </Fragment>
        ))}
      </div>
    </Card>
  )
}
