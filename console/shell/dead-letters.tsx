/** Dead letters of a task, a subscription or a named consumer: what was given up, and is kept until it is tried again or discarded. */
import { useState } from 'react'
import type { ReactNode } from 'react'
import { formatJson } from '../api/json.ts'
import type { DeadLetterSelection } from '../api/operations.ts'
import { Button, Code } from '../design/controls.tsx'
import { Card, Empty, Facts, Time, counted } from '../design/display.tsx'
import { Dialog } from '../design/layers.tsx'
import { useAction, useFormAction } from './action.ts'
import { Confirm } from './confirm.tsx'
import { DataTable } from './table.tsx'
import type { Column, Page } from './table.tsx'

const REFRESH_MS = 5_000

/** Sends a request for these dead letters, and returns how many it changed. */
type Change = (selection: DeadLetterSelection) => Promise<{ count: number }>

type DeadLettersProps<T> = {
  queryKey: readonly unknown[]
  fetchPage: (page: { offset: number; limit: number; signal: AbortSignal }) => Promise<Page<T>>
  columns: readonly Column<T>[]
  /** What a letter carried; undefined: the user may not see it. */
  contentOf: (letter: T) => unknown
  factsOf: (letter: T) => readonly [string, ReactNode][]
  retry: Change
  discard: Change
  /** Why the user may not retry them. */
  cannotRetry?: string | undefined
  /** Why the user may not discard them. */
  cannotDiscard?: string | undefined
  /** What becomes a dead letter here. */
  children: ReactNode
}

export function DeadLetters<T extends { id: string }>(props: DeadLettersProps<T>) {
  const { queryKey, fetchPage, columns, contentOf, factsOf, cannotRetry, cannotDiscard, children } = props
  const [total, setTotal] = useState(0)
  const [shown, setShown] = useState<T>()
  const [discarded, setDiscarded] = useState<T | 'all'>()
  const [retry, isRetrying] = useAction('Nothing was tried again', async (letter: T | 'all') => {
    const { count } = await props.retry(selectionOf(letter))
    return `${counted(count, 'dead letter')} ${count === 1 ? 'is' : 'are'} tried again`
  })
  const discard = useFormAction('Nothing was discarded', async () => {
    if (discarded === undefined) return
    const { count } = await props.discard(selectionOf(discarded))
    setDiscarded(undefined)
    return `${counted(count, 'dead letter')} ${count === 1 ? 'is' : 'are'} discarded`
  })
  const actions: Column<T> = {
    key: 'actions',
    title: 'Actions',
    width: '140px',
    cell: (letter) => (
      <span className="row">
        <Button small kind="quiet" icon="eye" label="Show the dead letter" onClick={() => setShown(letter)} />
        <Button
          small
          kind="quiet"
          icon="refresh"
          label="Retry the dead letter"
          disabledReason={cannotRetry}
          onClick={() => void retry(letter)}
        />
        <Button
          small
          kind="quiet"
          icon="trash"
          label="Discard the dead letter"
          disabledReason={cannotDiscard}
          onClick={() => setDiscarded(letter)}
        />
      </span>
    ),
  }
  return (
    <>
      {total === 0 ? null : (
        <div className="row stacks-on-phone">
          <p className="grow muted">{children} It is kept for 30 days.</p>
          <Button icon="refresh" busy={isRetrying} disabledReason={cannotRetry} onClick={() => void retry('all')}>
            Retry all
          </Button>
          <Button icon="trash" disabledReason={cannotDiscard} onClick={() => setDiscarded('all')}>
            Discard all
          </Button>
        </div>
      )}
      <DataTable<T>
        label="Dead letters"
        queryKey={queryKey}
        refetchMs={REFRESH_MS}
        fetchPage={fetchPage}
        rowId={({ id }) => id}
        columns={[...columns, actions]}
        onTotal={setTotal}
        empty={
          <Card>
            <Empty icon="ok" title="No dead letters">
              {children}
            </Empty>
          </Card>
        }
      />
      {shown === undefined ? null : (
        <Dialog title="Dead letter" kind="wide" onClose={() => setShown(undefined)}>
          <Facts rows={factsOf(shown)} />
          {contentOf(shown) === undefined ? (
            <p className="muted">Its records are shown to those who may subscribe to the channel.</p>
          ) : (
            <Code label="message" wrap text={formatJson(contentOf(shown), 2)} />
          )}
        </Dialog>
      )}
      {discarded === undefined ? null : (
        <Confirm
          title={discarded === 'all' ? `Discard all ${counted(total, 'dead letter')}` : 'Discard the dead letter'}
          submit="Discard"
          action={discard}
          onClose={() => setDiscarded(undefined)}
        >
          {discarded === 'all' ? 'Their messages are' : 'Its message is'} deleted, and cannot be tried again. This
          cannot be undone.
        </Confirm>
      )}
    </>
  )
}

const selectionOf = (letter: { id: string } | 'all'): DeadLetterSelection =>
  letter === 'all' ? { all: true } : { ids: [letter.id] }

/** Shows since when a trigger, a subscription or a consumer is behind: the arrival of the oldest message that waits where it is stored. */
export function WaitingSince({ at }: { at: string }) {
  return (
    <span>
      messages since <Time at={at} /> wait in their channel
    </span>
  )
}
