/** Posting a notification: signed, to public addresses alone, without following anybody elsewhere. */
import { createHmac } from 'node:crypto'
import { request as requestHttp } from 'node:http'
import { request as requestHttps } from 'node:https'
import { isIP } from 'node:net'
import { ServiceError } from '#core/errors/index.ts'
import { isPublicAddress, lookupPublic } from '#core/public-address.ts'
import { isListed } from './topic.ts'

/** From the name to the last byte of the answer. */
export const POST_DEADLINE_MS = 10_000

/**
 * `t=<epoch seconds>,v1=<hex of HMAC-SHA256 over "<t>.<body>">`: whoever knows the secret sees that it is ours and when it
 * was sent.
 */
export function signatureOf(secret: string, atSeconds: number, body: string): string {
  return `t=${atSeconds},v1=${createHmac('sha256', secret).update(`${atSeconds}.${body}`).digest('hex')}`
}

/** Resolves to the status of the answer, whose body is not looked at. Rejects when there is none in time. */
export function postWebhook(
  contact: string,
  {
    body,
    secret,
    privateHosts,
    deadlineMs,
    signal,
  }: {
    body: string
    secret: string
    privateHosts: readonly string[]
    deadlineMs: number
    signal: AbortSignal
  },
): Promise<number> {
  const url = new URL(contact)
  const isPrivate = isListed(url, privateHosts)
  if (!isPrivate && url.protocol !== 'https:')
    return Promise.reject(new ServiceError('forbidden', 'the contact is no https address'))
  // A literal address never reaches the lookup of a connection, and the list may have been longer when it was subscribed.
  const literal = url.hostname.replaceAll(/[[\]]/g, '')
  if (!isPrivate && isIP(literal) !== 0 && !isPublicAddress(literal))
    return Promise.reject(new ServiceError('forbidden', 'the contact is a private, loopback or link-local address'))
  const atSeconds = Math.floor(Date.now() / 1000)
  return new Promise((resolve, reject) => {
    const sent = (url.protocol === 'https:' ? requestHttps : requestHttp)(
      url,
      {
        method: 'POST',
        headers: {
          'content-type': 'application/json',
          'content-length': Buffer.byteLength(body),
          'user-agent': 'Skein',
          'x-skein-signature': signatureOf(secret, atSeconds, body),
        },
        ...(isPrivate ? {} : { lookup: lookupPublic }),
        // A connection of its own: a kept one would skip the judgement of its address.
        agent: false,
        signal: AbortSignal.any([signal, AbortSignal.timeout(deadlineMs)]),
      },
      (answer) => {
        answer.destroy()
        resolve(answer.statusCode ?? 0)
      },
    )
    sent.on('error', reject)
    sent.end(body)
  })
}
