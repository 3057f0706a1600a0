/**
 * The session of this browser. The cookie is out of reach of scripts; the access token lives in this module alone, and is replaced
 * before it ends.
 */
import { ApiError, readError } from './errors.ts'
import { formatJson, jsonOf } from './json.ts'
import {
  SESSION_HEADERS,
  TOKEN_PATH,
  forgetPrepared,
  sendRequest,
  tabs,
  takePrepared,
  watchSession,
} from './prepared.ts'
import type { SentRequest } from './prepared.ts'

export type SessionState =
  | { readonly kind: 'starting' }
  | { readonly kind: 'signed-out' }
  /** The session ended while a page was open: the page stays. */
  | { readonly kind: 'expired' }
  | { readonly kind: 'signed-in'; readonly userId: string; readonly role: 'user' | 'admin' }

type PageToken = { user_id: string; role: 'user' | 'admin'; access_token: string; expires_in: number }

const PATH = 'console/session'
/** A token that ends earlier is replaced before a request. */
const MIN_LIFETIME_MS = 45_000

let state: SessionState = { kind: 'starting' }
let token: { value: string; endsAtMs: number } | undefined
let renewing: Promise<string> | undefined
/** How often this page signed out. */
let ends = 0
const listeners = new Set<() => void>()

function become(next: SessionState): void {
  state = next
  for (const listener of listeners) listener()
}

export const sessionState = () => state
export function onSession(listener: () => void): () => void {
  listeners.add(listener)
  return () => listeners.delete(listener)
}

/** `sentMs`: when the token was asked for; it may have waited for this code. */
function accept(issued: PageToken, sentMs: number): string {
  token = { value: issued.access_token, endsAtMs: sentMs + issued.expires_in * 1_000 }
  const isSame = state.kind === 'signed-in' && state.userId === issued.user_id && state.role === issued.role
  if (!isSame) become({ kind: 'signed-in', userId: issued.user_id, role: issued.role })
  return issued.access_token
}

const request = (method: string, path: string, body?: unknown): SentRequest =>
  sendRequest(path, {
    method,
    headers: { ...SESSION_HEADERS, ...(body === undefined ? {} : { 'Content-Type': 'application/json' }) },
    ...(body === undefined ? {} : { body: formatJson(body) }),
  })

const answerTo = async ({ response }: SentRequest): Promise<Response> =>
  await response.catch((error: unknown) => {
    throw ApiError.unreachable(error)
  })

async function renew(): Promise<string> {
  const endsBefore = ends
  const isSameSession = watchSession()
  const sent = takePrepared(TOKEN_PATH) ?? request('POST', TOKEN_PATH)
  const response = await answerTo(sent)
  // The user signed out meanwhile: the answer is of the session that ended.
  if (ends !== endsBefore) throw new ApiError(401, { message: 'the session has ended' }, undefined)
  // A user signed in or out meanwhile: the answer may be of another user.
  if (!isSameSession()) return await renew()
  if (response.ok) return accept((await jsonOf(response)) as PageToken, sent.sentMs)
  const error = await readError(response)
  if (response.status === 401) {
    token = undefined
    become(state.kind === 'signed-in' || state.kind === 'expired' ? { kind: 'expired' } : { kind: 'signed-out' })
  }
  throw error
}

/** A token that is valid for the next request. `isRefused`: the server did not accept the one before. */
export async function accessToken(isRefused = false): Promise<string> {
  if (!isRefused && token !== undefined && token.endsAtMs - performance.now() > MIN_LIFETIME_MS) return token.value
  renewing ??= renew().finally(() => (renewing = undefined))
  return await renewing
}

/** Whether the server refused, rather than failed to answer. */
const isRefusal = (error: unknown) =>
  error instanceof ApiError && error.status >= 400 && error.status < 500 && error.status !== 429

/** Finds out whether this browser has a session. A server that fails to say so is asked again later. */
export async function resumeSession(): Promise<void> {
  try {
    await accessToken()
  } catch (error) {
    if (state.kind === 'starting' && isRefusal(error)) become({ kind: 'signed-out' })
    throw error
  }
}

export async function signIn(identity: string, secret: string): Promise<void> {
  const sent = request('POST', PATH, { identity, secret })
  const response = await answerTo(sent)
  if (!response.ok) {
    const error = await readError(response)
    if (error.status !== 401) throw error
    throw new ApiError(401, { message: 'the username or the password is wrong' }, error.requestId)
  }
  const issued = (await jsonOf(response)) as PageToken
  forgetPrepared()
  accept(issued, sent.sentMs)
  tabs.postMessage('signed-in')
}

export async function signOut(): Promise<void> {
  const response = await answerTo(request('DELETE', PATH))
  if (!response.ok && response.status !== 401) throw await readError(response)
  ends += 1
  forgetPrepared()
  token = undefined
  become({ kind: 'signed-out' })
  tabs.postMessage('signed-out')
}

tabs.addEventListener('message', ({ data }) => {
  token = undefined
  if (data === 'signed-out') become({ kind: 'signed-out' })
  // Perhaps another user: the next request asks for a token.
  else void resumeSession().catch(() => undefined)
})
