/**
 * Actions on many entities. The selection is frozen: "all that match" is the list of ids at the time of the click, and the dialog says
 * how many there are.
 */
import { useRef, useState } from 'react'
import { ApiError } from '../api/errors.ts'
import { refresh } from '../api/queries.ts'
import { Button } from '../design/controls.tsx'
import { Notice, counted, formatCount } from '../design/display.tsx'
import { Dialog } from '../design/layers.tsx'
import { reportError } from './states.tsx'

const PAGE_ROWS = 100
const MAX_SELECTED = 10_000
const AT_ONCE = 4

export type BulkAction = {
  label: string
  run: (id: string) => Promise<unknown>
  isDanger?: boolean
  /** A status that means that the entity is so already. */
  allows?: number
}

type BulkBarProps = {
  noun: string
  selected: ReadonlySet<string>
  total: number
  onClear: () => void
  onSelect: (ids: ReadonlySet<string>) => void
  fetchIds: (offset: number, limit: number) => Promise<{ total: number; ids: readonly string[] }>
  actions: readonly BulkAction[]
}

export function BulkBar({ noun, selected, total, onClear, onSelect, fetchIds, actions }: BulkBarProps) {
  const [isCollecting, setCollecting] = useState(false)
  const [pending, setPending] = useState<{ action: BulkAction; ids: readonly string[] }>()
  if (selected.size === 0 && pending === undefined) return null
  const collect = async () => {
    setCollecting(true)
    try {
      const ids = new Set<string>()
      for (let offset = 0; offset < Math.min(total, MAX_SELECTED); offset += PAGE_ROWS)
        for (const id of (await fetchIds(offset, PAGE_ROWS)).ids) ids.add(id)
      onSelect(ids)
    } catch (error) {
      reportError(error, 'The selection failed')
    } finally {
      setCollecting(false)
    }
  }
  return (
    <div className="bulk" role="toolbar" aria-label="Selection">
      <span className="grow">{counted(selected.size, noun)} selected</span>
      {selected.size < Math.min(total, MAX_SELECTED) ? (
        <Button small kind="quiet" busy={isCollecting} onClick={() => void collect()}>
          Select all {formatCount(Math.min(total, MAX_SELECTED))}
        </Button>
      ) : null}
      {actions.map((action) => (
        <Button
          key={action.label}
          small
          kind={action.isDanger === true ? 'danger' : undefined}
          onClick={() => setPending({ action, ids: [...selected] })}
        >
          {action.label}
        </Button>
      ))}
      <Button small kind="quiet" onClick={onClear}>
        Clear
      </Button>
      {pending === undefined ? null : (
        <BulkDialog
          noun={noun}
          {...pending}
          onClose={(isDone) => {
            setPending(undefined)
            if (isDone) onClear()
          }}
        />
      )}
    </div>
  )
}

function BulkDialog({
  noun,
  action,
  ids,
  onClose,
}: {
  noun: string
  action: BulkAction
  ids: readonly string[]
  onClose: (isDone: boolean) => void
}) {
  const [done, setDone] = useState(0)
  const [failures, setFailures] = useState<readonly string[]>([])
  const [phase, setPhase] = useState<'asking' | 'running' | 'ended'>('asking')
  const stop = useRef(false)
  const run = async () => {
    setPhase('running')
    const queue = [...ids]
    const work = async () => {
      for (let id = queue.shift(); id !== undefined && !stop.current; id = queue.shift()) {
        const failure = await action.run(id).then(
          () => undefined,
          (error: unknown) =>
            error instanceof ApiError && error.status === action.allows ? undefined : String((error as Error).message),
        )
        if (failure !== undefined) setFailures((before) => [...before, `${id}: ${failure}`])
        setDone((before) => before + 1)
      }
    }
    await Promise.all(Array.from({ length: AT_ONCE }, work))
    await refresh()
    setPhase('ended')
  }
  const title = `${action.label} ${counted(ids.length, noun)}`
  const isOver = phase === 'ended'
  return (
    <Dialog
      title={title}
      isFixed={phase === 'running'}
      onClose={() => onClose(isOver)}
      footer={
        phase === 'asking' ? (
          <>
            <Button onClick={() => onClose(false)}>Cancel</Button>
            <Button kind={action.isDanger === true ? 'danger' : 'primary'} onClick={() => void run()}>
              {title}
            </Button>
          </>
        ) : phase === 'running' ? (
          <Button onClick={() => (stop.current = true)}>Stop</Button>
        ) : (
          <Button kind="primary" onClick={() => onClose(true)}>
            Close
          </Button>
        )
      }
    >
      {phase === 'asking' ? (
        <p>
          {action.isDanger === true ? 'This cannot be undone. ' : ''}Only the selected ones are affected, whatever the
          list shows now.
        </p>
      ) : (
        <>
          <div
            className="progress"
            role="progressbar"
            aria-label={title}
            aria-valuenow={done}
            aria-valuemax={ids.length}
          >
            <div style={{ width: `${(done / ids.length) * 100}%` }} />
          </div>
          <p className="muted">
            {formatCount(done)} of {formatCount(ids.length)}
          </p>
          {failures.length === 0 ? null : (
            <Notice tone="bad">
              {formatCount(failures.length)} failed. The first: {failures[0]}
            </Notice>
          )}
          {isOver && failures.length === 0 && done === ids.length ? <Notice tone="ok">Done.</Notice> : null}
          {isOver && done < ids.length ? <Notice tone="warn">Stopped. The others are unchanged.</Notice> : null}
        </>
      )}
    </Dialog>
  )
}
