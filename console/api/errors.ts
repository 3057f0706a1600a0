/** Errors of requests: one class for everything that the API or the network answers. */
import { parseJson } from './json.ts'

type ErrorBody = {
  error?: string
  message?: string
  request_id?: string
  details?: { path: string; message: string }[]
  current?: unknown
}

export class ApiError extends Error {
  /** The status of HTTP; 0: there was no answer. */
  readonly status: number
  readonly requestId: string | undefined
  readonly details: readonly { path: string; message: string }[]
  /** What is stored now, where a change was based on something older (412). */
  readonly current: unknown

  constructor(status: number, body: ErrorBody, requestId: string | undefined) {
    super(body.message ?? `the server answered ${status}`)
    this.name = 'ApiError'
    this.status = status
    this.requestId = body.request_id ?? requestId
    this.details = body.details ?? []
    this.current = body.current
  }

  static unreachable(cause: unknown): ApiError {
    const isAborted = cause instanceof DOMException && cause.name === 'AbortError'
    return new ApiError(
      0,
      { message: isAborted ? 'the request was cancelled' : 'the server does not answer' },
      undefined,
    )
  }
}

export async function readError(response: Response): Promise<ApiError> {
  const text = await response.text().catch(() => '')
  const requestId = response.headers.get('x-request-id') ?? undefined
  try {
    return new ApiError(response.status, parseJson(text) as ErrorBody, requestId)
  } catch {
    return new ApiError(response.status, {}, requestId)
  }
}

/** The action that is missing, as the message names it: "requires the action client_update". */
export function missingAction(error: ApiError): string | undefined {
  return /\baction (?:`|")?([a-z_]+)/.exec(error.message)?.[1]
}
