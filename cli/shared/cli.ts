/**
 * One invocation: addresses, token and output. Commands receive only this object, which uses only the public HTTP API.
 */
import type { ResponseStyle, ApiRequest, Cli, Reply } from './command.ts'
import type { ConfigFile } from './config-file.ts'
import { curlLine } from './curl.ts'
import { CommandError } from './failures.ts'
import { sendRequest } from './http.ts'
import type { Incoming } from './http.ts'
import { readSettings } from './invocation.ts'
import type { Invocation } from './invocation.ts'
import { createOutput } from './output.ts'
import type { Output } from './output.ts'
import { refusalOf } from './refusals.ts'
import { bodyOf, headersOf, refuseEmptyQuery, requestOf, urlOf } from './request.ts'
import { createSession } from './session.ts'
import type { View } from './table.ts'
import { isRecord, plainText } from './values.ts'
import { parseWithExactIntegers } from '#core/exact-integers.ts'

/** The server must send something within this time; a bulk of 10,000 items takes seconds. */
const RESPONSE_DEADLINE_MS = 60_000

export function createCli(invocation: Invocation, file: ConfigFile): Cli {
  const { environment, streams, signal } = invocation
  const settings = readSettings(invocation, file)
  const output = createOutput(streams, settings.isRaw, environment)
  const session = createSession(settings, async (request) => {
    const url = urlOf(settings.address(request.service).url, request)
    return await send(request, await session.authorization(request, url))
  })

  async function prepare(request: ApiRequest): Promise<{ url: string; headers: Record<string, string> }> {
    const url = urlOf(settings.address(request.service).url, request)
    const authorization = await session.authorization(request, url)
    return { url, headers: headersOf(request, authorization) }
  }

  async function send(request: ApiRequest, authorization: string | undefined): Promise<Incoming> {
    const url = urlOf(settings.address(request.service).url, request)
    const headers = headersOf(request, authorization)
    const body = bodyOf(request, headers)
    if (settings.isCurl) {
      const shown = Buffer.isBuffer(body) ? '@-' : body
      printCurl(request, url, headers, typeof shown === 'string' ? shown : undefined)
    }
    const incoming = await sendRequest({
      method: request.method,
      url,
      headers,
      body,
      deadlineMs: request.deadlineMs ?? RESPONSE_DEADLINE_MS,
      isInsecure: settings.isInsecure,
      signal,
      onSent: request.onSent,
    })
    for (const hint of hintsOf(incoming)) output.hint(hint)
    return incoming
  }

  function printCurl(
    request: ApiRequest,
    url: string,
    headers: Record<string, string>,
    body: string | undefined,
  ): void {
    const { 'User-Agent': _agent, ...shown } = headers
    if (shown['Registry-Authorization'] !== undefined) shown['Registry-Authorization'] = 'Basic …'
    output.note(
      curlLine({
        method: request.method,
        url,
        headers: shown,
        body,
        file: request.file,
        isForm: request.contentType === undefined,
        isInsecure: settings.isInsecure,
        hidden: session.hidden(),
      }),
    )
  }

  return {
    settings,
    output,
    signal,
    session,
    prepare,
    async call(call, given) {
      return await this.request(requestOf(call, given, settings))
    },
    async request(request) {
      refuseEmptyQuery(request)
      const url = urlOf(settings.address(request.service).url, request)
      let incoming = await send(request, await session.authorization(request, url))
      if (incoming.status === 401 && (await session.renew(request)))
        incoming = await send(request, await session.authorization(request, url))
      if (incoming.status >= 400 && request.accepts?.includes(incoming.status) !== true)
        throw refusalOf(incoming, request, session)
      return { ...incoming, value: parseBody(incoming) }
    },
    show(answer, reply, view) {
      showResponse(output, answer, reply, view)
    },
  }
}

/** Unknown parameter names that the server ignored, with its suggestions. */
function hintsOf({ headers }: Incoming): string[] {
  const header = headers['skein-hint']
  return header === undefined || header.length === 0 ? [] : String(header).split('; ')
}

function parseBody({ text, headers }: Incoming): unknown {
  if (text === '') return undefined
  if (!String(headers['content-type'] ?? '').includes('json')) return text
  try {
    return parseWithExactIntegers(text)
  } catch {
    throw new CommandError('the answer is not JSON', 'check the address: skein doctor')
  }
}

function showResponse(output: Output, answer: ResponseStyle, reply: Reply, view?: View): void {
  const value = isRecord(reply.value) ? reply.value : {}
  if (answer === 'created') {
    const location = reply.headers.location?.split('/').at(-1) ?? ''
    output.created(plainText(value['id'], decodeURIComponent(location)))
  } else if (answer === 'revoked') output.revoked(plainText(value['revocation_time']))
  else if (answer === 'ok' || reply.value === undefined) output.ok()
  else if (typeof reply.value === 'string') output.line(reply.value.trimEnd())
  else output.data(reply.value, view)
}
