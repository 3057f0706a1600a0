/** What a screen shows while it waits, when it failed, and when the user may not see it. */
import type { UseQueryResult } from '@tanstack/react-query'
import { Link } from '@tanstack/react-router'
import type { ReactNode } from 'react'
import { ApiError, missingAction } from '../api/errors.ts'
import { Button, CopyButton } from '../design/controls.tsx'
import { Details, Empty, Notice, Skeleton, relativeTime, useNow } from '../design/display.tsx'
import { showToast } from '../design/layers.tsx'
import { paths } from '../paths.ts'
import { useDomainId } from './url.ts'

type Result<T> = Pick<
  UseQueryResult<T>,
  'data' | 'error' | 'isPending' | 'isPlaceholderData' | 'dataUpdatedAt' | 'refetch'
>

/** The content of a query, or its state. Old data stays, dimmed, with its age. */
export function QueryView<T>({
  result,
  children,
  rows,
  entity,
}: {
  result: Result<T>
  children: (data: T) => ReactNode
  rows?: number
  /** `client:<id>`, for the explanation of a refusal. */
  entity?: string
}) {
  const { data, error, isPlaceholderData, dataUpdatedAt, refetch } = result
  if (error !== null && (data === undefined || isRefusal(error)))
    return <ErrorState error={error} onRetry={() => void refetch()} entity={entity} />
  if (data === undefined) return <Skeleton {...(rows === undefined ? {} : { rows })} />
  const isOld = error !== null
  return (
    <>
      {isOld ? <AgeNotice at={dataUpdatedAt} error={error} onRetry={() => void refetch()} /> : null}
      <div className={isOld || isPlaceholderData ? 'contents stale' : 'contents'}>{children(data)}</div>
    </>
  )
}

/** A notice above content that could not be asked for again. */
export function AgeNotice({ at, error, onRetry }: { at: number; error: Error; onRetry: () => void }) {
  const now = useNow(5_000)
  return (
    <Notice tone="warn" actions={<Button onClick={onRetry}>Retry</Button>}>
      This is as of {relativeTime(at, now)}: {error.message}.
    </Notice>
  )
}

export const isRefusal = (error: Error) => error instanceof ApiError && [403, 404].includes(error.status)

export function ErrorState({
  error,
  onRetry,
  entity,
}: {
  error: Error
  onRetry?: () => void
  entity?: string | undefined
}) {
  const known = error instanceof ApiError ? error : undefined
  if (known?.status === 403) return <NoPermission error={known} entity={entity} />
  if (known?.status === 404)
    return (
      <Empty icon="search" title="Not found" actions={<BackButton />}>
        It does not exist, was deleted, or belongs to another domain.
      </Empty>
    )
  // The dialog of the shell asks for a login.
  if (known?.status === 401) return <Skeleton />
  if (isMissingCode(error))
    return (
      <Empty
        icon="refresh"
        title="A part of the console could not be loaded"
        actions={
          <Button icon="refresh" onClick={() => location.reload()}>
            Reload the page
          </Button>
        }
      >
        A new version of Skein may have been installed since the page was opened.
      </Empty>
    )
  return (
    <Empty
      icon="warn"
      title={known?.status === 0 ? 'Skein does not answer' : 'This did not work'}
      actions={
        <>
          {onRetry === undefined ? null : (
            <Button icon="refresh" onClick={onRetry}>
              Retry
            </Button>
          )}
          {known?.requestId === undefined ? null : (
            <Details>
              Request <code>{known.requestId}</code> <CopyButton text={known.requestId} label="Copy request id" />
            </Details>
          )}
        </>
      }
    >
      {known?.status === 0 ? 'The page tries again by itself. Check that the platform runs.' : error.message}
    </Empty>
  )
}

/** How browsers, and the loader of style sheets, say that a file of the console is missing. */
const MISSING_CODE = [
  'Failed to fetch dynamically imported module',
  'error loading dynamically imported module',
  'Importing a module script failed',
  'Unable to preload CSS',
]
const isMissingCode = ({ message }: Error) => MISSING_CODE.some((start) => message.startsWith(start))

function BackButton() {
  return (
    <Button icon="overview" onClick={() => history.back()}>
      Go back
    </Button>
  )
}

export function NoPermission({ error, entity }: { error: ApiError; entity?: string | undefined }) {
  const domain = useDomainId()
  const action = missingAction(error)
  return (
    <Empty
      icon="lock"
      title="You do not have access"
      actions={
        domain === '' ? null : (
          <Link
            className="button"
            to={paths.access(domain, {
              entity: entity ?? `domain:${domain}`,
              ...(action === undefined ? {} : { action }),
            })}
          >
            Explain access
          </Link>
        )
      }
    >
      {action === undefined ? (
        error.message
      ) : (
        <>
          This requires the action <code>{action}</code>. An administrator of the domain can give you a role with it.
        </>
      )}
    </Empty>
  )
}

/** All errors of actions are reported here. */
export function reportError(error: unknown, what: string): void {
  const known = error instanceof ApiError ? error : undefined
  const details = known?.details.map(({ path, message }) => `${path}: ${message}`).join('; ')
  const request = known?.requestId === undefined ? undefined : `Request ${known.requestId}`
  const message = error instanceof Error ? error.message : String(error)
  showToast(
    'bad',
    `${what}: ${message}`,
    [details, request].filter((part) => part !== undefined && part !== '').join(' · ') || undefined,
  )
}
