/**
 * A table of any length: only visible rows are rendered, only visible pages are requested. Keys: j and k or the arrows move, Enter
 * opens, x selects.
 */
import { keepPreviousData, useQueries, useQuery } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { useVirtualizer } from '@tanstack/react-virtual'
import { useEffect, useRef, useState } from 'react'
import type { ReactNode } from 'react'
import { Skeleton, formatCount } from '../design/display.tsx'
import { isSecondKey, useKeys } from './keyboard.ts'
import { AgeNotice, ErrorState, isRefusal } from './states.tsx'

const PAGE_ROWS = 100
const OVERSCAN_ROWS = 8
const HEAD_PX = 34
const COARSE = matchMedia('(pointer: coarse), (max-width: 720px)')

export type Column<T> = {
  readonly key: string
  /** Empty for a column of buttons. */
  readonly title: string
  /** A track of CSS grid. */
  readonly width: string
  readonly cell: (row: T) => ReactNode
  /** Left out on a phone. */
  readonly isMinor?: boolean
  /** The value of `order`. */
  readonly order?: string
}

export type Page<T> = { total: number; rows: readonly T[] }

type TableProps<T> = {
  label: string
  /** Says which rows: the operation and its filters. */
  queryKey: readonly unknown[]
  fetchPage: (page: { offset: number; limit: number; signal: AbortSignal }) => Promise<Page<T>>
  columns: readonly Column<T>[]
  rowId: (row: T) => string
  hrefOf?: (row: T) => string
  empty: ReactNode
  refetchMs?: number
  sort?: { order: string; dir: string; onSort: (order: string, dir: string) => void }
  selection?: { selected: ReadonlySet<string>; onSelect: (ids: ReadonlySet<string>) => void }
  onTotal?: (total: number) => void
}

export function usePages<T>(
  { queryKey, fetchPage, refetchMs }: Pick<TableProps<T>, 'queryKey' | 'fetchPage' | 'refetchMs'>,
  wanted: readonly number[],
) {
  const options = (index: number) => ({
    queryKey: [...queryKey, { page: index }],
    queryFn: async ({ signal }: { signal: AbortSignal }) =>
      await fetchPage({ offset: index * PAGE_ROWS, limit: PAGE_ROWS, signal }),
    ...(refetchMs === undefined ? {} : { refetchInterval: refetchMs }),
  })
  const first = useQuery({ ...options(0), placeholderData: keepPreviousData })
  const others = wanted.filter((index) => index !== 0)
  const rest = useQueries({ queries: others.map((index) => options(index)) })
  const rowAt = (row: number): T | undefined => {
    const index = Math.floor(row / PAGE_ROWS)
    const page = index === 0 ? first.data : rest[others.indexOf(index)]?.data
    return page?.rows[row % PAGE_ROWS]
  }
  return { first, rowAt }
}

export function useRowHeight(): { rowPx: number; isPhone: boolean } {
  const [isPhone, setPhone] = useState(COARSE.matches)
  useEffect(() => {
    const change = () => setPhone(COARSE.matches)
    COARSE.addEventListener('change', change)
    return () => COARSE.removeEventListener('change', change)
  }, [])
  return { rowPx: isPhone ? 44 : 32, isPhone }
}

export function DataTable<T>(props: TableProps<T>) {
  const { label, columns, rowId, hrefOf, empty, sort, selection, onTotal } = props
  const { rowPx, isPhone } = useRowHeight()
  const shown = isPhone ? columns.filter(({ isMinor }) => isMinor !== true) : columns
  const scroller = useRef<HTMLDivElement>(null)
  const [pages, setPages] = useState<readonly number[]>([0])
  const [current, setCurrent] = useState(0)
  const navigate = useNavigate()
  const { first, rowAt } = usePages(props, pages)
  const total = first.data?.total ?? 0
  const virtual = useVirtualizer({
    count: total,
    getScrollElement: () => scroller.current,
    estimateSize: () => rowPx,
    overscan: OVERSCAN_ROWS,
    scrollMargin: 0,
    paddingStart: HEAD_PX,
  })
  const items = virtual.getVirtualItems()
  const firstPage = Math.floor((items[0]?.index ?? 0) / PAGE_ROWS)
  const lastPage = Math.floor((items.at(-1)?.index ?? 0) / PAGE_ROWS)
  useEffect(() => {
    const wanted = Array.from({ length: lastPage - firstPage + 1 }, (_none, at) => firstPage + at)
    setPages((before) => (before.join() === wanted.join() ? before : wanted))
  }, [firstPage, lastPage])
  useEffect(() => virtual.measure(), [rowPx, virtual])
  useEffect(() => {
    if (first.data !== undefined) onTotal?.(first.data.total)
  }, [first.data, onTotal])

  const focusRow = (index: number) => {
    const at = Math.max(0, Math.min(total - 1, index))
    setCurrent(at)
    virtual.scrollToIndex(at)
    requestAnimationFrame(() => scroller.current?.querySelector<HTMLElement>(`[data-row='${at}']`)?.focus())
  }
  // The first press enters the list, wherever the focus is. A page has one list that it is about, its first.
  const enter = () => {
    const isFirst = document.querySelector('[role=grid]') === scroller.current?.firstElementChild
    if (total > 0 && isFirst) focusRow(current)
  }
  useKeys({ j: enter, k: enter })

  if (first.error !== null && (first.data === undefined || isRefusal(first.error)))
    return <ErrorState error={first.error} onRetry={() => void first.refetch()} />
  if (first.data === undefined) return <Skeleton rows={6} />
  if (total === 0) return <>{empty}</>

  const tracks = [...(selection === undefined ? [] : ['20px']), ...shown.map(({ width }) => width)].join(' ')
  const toggle = (id: string) => {
    if (selection === undefined) return
    const next = new Set(selection.selected)
    if (!next.delete(id)) next.add(id)
    selection.onSelect(next)
  }
  const onKeyDown = (event: React.KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isSecondKey(event)) return
    const row = rowAt(current)
    const goTo = {
      j: current + 1,
      ArrowDown: current + 1,
      k: current - 1,
      ArrowUp: current - 1,
      Home: 0,
      End: total - 1,
    }[event.key]
    if (goTo !== undefined) focusRow(goTo)
    else if (
      event.key === 'Enter' &&
      row !== undefined &&
      hrefOf !== undefined &&
      !(event.target instanceof HTMLAnchorElement)
    )
      void navigate({ to: hrefOf(row) })
    else if (event.key === 'x' && row !== undefined) toggle(rowId(row))
    else return
    event.preventDefault()
  }
  const loaded = items.flatMap(({ index }) => rowAt(index) ?? [])
  const allIds = loaded.map((row) => rowId(row))
  const areAll = allIds.length > 0 && allIds.every((id) => selection?.selected.has(id) === true)
  const table = (
    <div className={`table ${first.isPlaceholderData || first.error !== null ? 'stale' : ''}`}>
      <div className="table-scroll" ref={scroller} style={{ maxHeight: 'max(260px, calc(100dvh - 230px))' }}>
        <div
          role="grid"
          aria-label={label}
          aria-rowcount={total + 1}
          aria-multiselectable={selection !== undefined || undefined}
          onKeyDown={onKeyDown}
          style={{ height: virtual.getTotalSize(), position: 'relative', minWidth: 'min-content' }}
        >
          <div role="row" aria-rowindex={1} className="table-head" style={{ gridTemplateColumns: tracks }}>
            {selection === undefined ? null : (
              <span role="columnheader">
                <input
                  type="checkbox"
                  aria-label="Select the visible rows"
                  checked={areAll}
                  onChange={() => selection.onSelect(areAll ? new Set() : new Set([...selection.selected, ...allIds]))}
                />
              </span>
            )}
            {shown.map((column) => (
              <SortHeader key={column.key} column={column} sort={sort} />
            ))}
          </div>
          {items.map(({ index, start }) => {
            const row = rowAt(index)
            const id = row === undefined ? `row-${index}` : rowId(row)
            const isSelected = selection?.selected.has(id) === true
            return (
              <div
                key={id}
                role="row"
                aria-rowindex={index + 2}
                data-row={index}
                tabIndex={index === Math.min(current, total - 1) ? 0 : -1}
                aria-selected={selection === undefined ? undefined : isSelected}
                className="table-row"
                style={{
                  gridTemplateColumns: tracks,
                  position: 'absolute',
                  top: 0,
                  left: 0,
                  right: 0,
                  transform: `translateY(${start}px)`,
                }}
                onFocus={() => setCurrent(index)}
                onClick={(event) => {
                  if (row === undefined || hrefOf === undefined) return
                  if (event.target instanceof Element && event.target.closest('a,button,input') !== null) return
                  if (window.getSelection()?.isCollapsed === false) return
                  void navigate({ to: hrefOf(row) })
                }}
              >
                {selection === undefined ? null : (
                  <span role="gridcell">
                    <input
                      type="checkbox"
                      tabIndex={-1}
                      aria-label="Select"
                      checked={isSelected}
                      onChange={() => toggle(id)}
                    />
                  </span>
                )}
                {shown.map((column) => (
                  <span key={column.key} role="gridcell">
                    {row === undefined ? (
                      <span className="skeleton" style={{ display: 'block', width: '60%' }} />
                    ) : (
                      column.cell(row)
                    )}
                  </span>
                ))}
              </div>
            )
          })}
        </div>
      </div>
      <div className="table-foot">
        <span>
          {formatCount(total)} {total === 1 ? 'row' : 'rows'}
        </span>
        <span className="only-desktop">
          <kbd className="kbd">j</kbd> <kbd className="kbd">k</kbd> move
          {hrefOf === undefined ? null : (
            <>
              {' '}
              · <kbd className="kbd">Enter</kbd> open
            </>
          )}
          {selection === undefined ? null : (
            <>
              {' '}
              · <kbd className="kbd">x</kbd> select
            </>
          )}
        </span>
      </div>
    </div>
  )
  if (first.error === null) return table
  return (
    <>
      <AgeNotice at={first.dataUpdatedAt} error={first.error} onRetry={() => void first.refetch()} />
      {table}
    </>
  )
}

function SortHeader<T>({ column, sort }: { column: Column<T>; sort: TableProps<T>['sort'] }) {
  const { order, title } = column
  if (title === '')
    return (
      <span role="columnheader">
        <span className="visually-hidden">Actions</span>
      </span>
    )
  if (order === undefined || sort === undefined) return <span role="columnheader">{title}</span>
  const isCurrent = sort.order === order
  const next = isCurrent && sort.dir === 'asc' ? 'desc' : 'asc'
  return (
    <span role="columnheader" aria-sort={isCurrent ? (sort.dir === 'asc' ? 'ascending' : 'descending') : 'none'}>
      <button type="button" className="sort" onClick={() => sort.onSort(order, next)}>
        {title}
        <span aria-hidden="true">{isCurrent ? (sort.dir === 'asc' ? ' ↑' : ' ↓') : ''}</span>
      </button>
    </span>
  )
}
