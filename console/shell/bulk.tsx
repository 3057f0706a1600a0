/**
 * Actions on many entities. The selection is frozen: "all that match" is the list of ids at the time of the click, and the dialog says
 * how many there are.
 */
import { useRef, useState } from 'react'
import type { ReactNode } from 'react'
import { ApiError } from '../api/errors.ts'
import { refresh } from '../api/queries.ts'
import { Button, TextField } from '../design/controls.tsx'
import { Notice, counted, formatCount } from '../design/display.tsx'
import { Dialog } from '../design/layers.tsx'
import { reportError } from './states.tsx'

const PAGE_ROWS = 100
const MAX_SELECTED = 10_000
const AT_ONCE = 4
/** Above this, the user types the number, so that a click too many reaches no whole fleet. */
const MAX_UNTYPED = 100
/** The separators of thousands that lists and dialogs show in some language. */
const SEPARATORS = /[\s.,'’]/g

export type BulkAction = {
  label: string
  /** Acts on the entities of one request. `value`: what `ask` was answered. */
  run: (ids: readonly string[], value: string) => Promise<unknown>
  /** Entities of a request; one, if absent. All of them succeed or fail together. */
  size?: number
  /** What the action needs to know, as a field. Nothing runs while the value is empty. */
  ask?: (value: string, onChange: (value: string) => void) => ReactNode
  isDanger?: boolean
  /** Why the user cannot do it with any of the entities. */
  disabledReason?: string | undefined
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
  /** Writes the entities into a file. */
  onExport?: (ids: ReadonlySet<string>) => Promise<void>
}

export function BulkBar({ noun, selected, total, onClear, onSelect, fetchIds, actions, onExport }: BulkBarProps) {
  const [isCollecting, setCollecting] = useState(false)
  const [isExporting, setExporting] = useState(false)
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
  const exportAll = async () => {
    setExporting(true)
    try {
      await onExport?.(selected)
    } catch (error) {
      reportError(error, 'The export failed')
    } finally {
      setExporting(false)
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
          disabledReason={action.disabledReason}
          onClick={() => setPending({ action, ids: [...selected] })}
        >
          {action.label}
        </Button>
      ))}
      {onExport === undefined ? null : (
        <Button small busy={isExporting} onClick={() => void exportAll()}>
          Export
        </Button>
      )}
      <Button small kind="quiet" onClick={onClear}>
        Clear selection
      </Button>
      {pending === undefined ? null : (
        <BulkDialog
          noun={noun}
          {...pending}
          onClose={(left) => {
            setPending(undefined)
            if (left !== undefined) onSelect(new Set(left))
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
  /** Gets the entities that stay selected after an action: those that it did not change. */
  onClose: (left?: readonly string[]) => void
}) {
  const [value, setValue] = useState('')
  const [typed, setTyped] = useState('')
  const [done, setDone] = useState(0)
  const left = useRef(new Set(ids))
  const [failures, setFailures] = useState<readonly string[]>([])
  const [phase, setPhase] = useState<'asking' | 'running' | 'ended'>('asking')
  const stop = useRef(false)
  const run = async () => {
    setPhase('running')
    const size = action.size ?? 1
    const queue = Array.from({ length: Math.ceil(ids.length / size) }, (_none, at) =>
      ids.slice(at * size, (at + 1) * size),
    )
    const work = async () => {
      for (let part = queue.shift(); part !== undefined && !stop.current; part = queue.shift()) {
        const failure = await action.run(part, value).then(
          () => undefined,
          (error: unknown) =>
            error instanceof ApiError && error.status === action.allows ? undefined : String((error as Error).message),
        )
        const which = part.length === 1 ? `${part[0]}: ` : ''
        if (failure === undefined) for (const id of part) left.current.delete(id)
        else setFailures((before) => [...before, ...part.map(() => `${which}${failure}`)])
        setDone((before) => before + (part?.length ?? 0))
      }
    }
    await Promise.all(Array.from({ length: AT_ONCE }, work))
    await refresh()
    setPhase('ended')
  }
  const title = `${action.label} ${counted(ids.length, noun)}`
  const isOver = phase === 'ended'
  const close = () => (isOver ? onClose([...left.current]) : onClose())
  const needsNumber = ids.length > MAX_UNTYPED
  const disabledReason =
    action.ask !== undefined && value === ''
      ? 'Answer the question first'
      : needsNumber && typed.replace(SEPARATORS, '') !== String(ids.length)
        ? `Type ${ids.length} first`
        : undefined
  return (
    <Dialog
      title={title}
      isFixed={phase === 'running'}
      onClose={close}
      footer={
        phase === 'asking' ? (
          <>
            <Button onClick={close}>Cancel</Button>
            <Button
              kind={action.isDanger === true ? 'danger' : 'primary'}
              disabledReason={disabledReason}
              onClick={() => void run()}
            >
              {title}
            </Button>
          </>
        ) : phase === 'running' ? (
          <Button onClick={() => (stop.current = true)}>Stop</Button>
        ) : (
          <Button kind="primary" onClick={close}>
            Close
          </Button>
        )
      }
    >
      {phase === 'asking' ? (
        <form
          className="stack mid"
          onSubmit={(event) => {
            event.preventDefault()
            if (disabledReason === undefined) void run()
          }}
        >
          <p>
            {action.isDanger === true ? 'This cannot be undone. ' : ''}Only the selected ones are affected, whatever the
            list shows now.
          </p>
          {action.ask?.(value, setValue)}
          {needsNumber ? (
            <TextField
              label={`Type ${ids.length} to go on`}
              value={typed}
              onChange={setTyped}
              inputMode="numeric"
              autoComplete="off"
            />
          ) : null}
          {/* With it, Enter in a field means what the button below means. */}
          <button type="submit" hidden />
        </form>
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
              {formatCount(failures.length)} failed and stay selected. The first: {failures[0]}
            </Notice>
          )}
          {isOver && failures.length === 0 && done === ids.length ? <Notice tone="ok">Done.</Notice> : null}
          {isOver && done < ids.length ? <Notice tone="warn">Stopped. The others are unchanged.</Notice> : null}
        </>
      )}
    </Dialog>
  )
}
