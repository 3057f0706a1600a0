/** What a run writes, as it writes it. */
import { useEffect, useRef, useState } from 'react'
import type { ApiError } from '../../api/errors.ts'
import { followStream } from '../../api/event-stream.ts'
import type { StreamState } from '../../api/event-stream.ts'
import { parseJson } from '../../api/json.ts'
import { recordRequest } from '../../api/requests.ts'
import { Button } from '../../design/controls.tsx'
import { Card, Empty, State } from '../../design/display.tsx'
import { ErrorState } from '../../shell/states.tsx'

type Part = { id: number; stream: string; text: string }
const MAX_PARTS = 2_000

export function LogView({ task, run }: { task: string; run?: string }) {
  const [parts, setParts] = useState<readonly Part[]>([])
  const [state, setState] = useState<StreamState>('connecting')
  const [error, setError] = useState<ApiError>()
  const [isFollowing, setFollowing] = useState(true)
  const place = useRef<HTMLDivElement>(null)
  useEffect(() => {
    const stop = new AbortController()
    const path = `tasks/${task}/logs?follow=true${run === undefined ? '' : `&run_id=${run}`}`
    recordRequest({ method: 'GET', path, body: undefined })
    setParts([])
    let next = 0
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
        const part = { id: next++, stream: event, text }
        setParts((before) => [...before.slice(-MAX_PARTS), part])
      },
    })
    return () => stop.abort()
  }, [task, run])
  useEffect(() => {
    if (isFollowing && place.current !== null) place.current.scrollTop = place.current.scrollHeight
  }, [parts, isFollowing])
  if (error?.status === 404 || (state === 'ended' && error === undefined && parts.length === 0))
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
          {state === 'open' ? 'Live' : state === 'ended' ? 'The run has ended' : 'Connecting'}
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
        {parts.map(({ id, stream, text }) => (
          <span key={id} className={stream === 'stderr' ? 'err' : ''}>
            {text}
          </span>
        ))}
      </div>
    </Card>
  )
}
