/** Sends webhook requests: signed, to public addresses only, without following redirects. */
import { createHmac } from 'node:crypto'
import { request as requestHttp } from 'node:http'
import { request as requestHttps } from 'node:https'
import { isIP } from 'node:net'
import { ServiceError } from '#core/errors/index.ts'
import { isPublicAddress, lookupPublic } from '#core/public-address.ts'
import { isListed } from './topic.ts'

/** Deadline from the name resolution to the end of the response. */
export const POST_DEADLINE_MS = 10_000

/**
 * Returns `t=<epoch seconds>,v1=<hex of HMAC-SHA256 over "<t>.<body>">`. A receiver with the secret can verify the
 * origin and the time.
 */
export function signatureOf(secret: string, atSeconds: number, body: string): string {
  return `t=${atSeconds},v1=${createHmac('sha256', secret).update(`${atSeconds}.${body}`).digest('hex')}`
}

/** Resolves to the status of the response and ignores its body. Rejects without a response within the deadline. */
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
    return Promise.reject(new ServiceError('forbidden', 'the contact is not an https URL'))
  // Literal addresses bypass `lookup`, and SKEIN_WEBHOOK_HOSTS may have changed since the subscription.
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
        // A new connection: a reused one would bypass the check of its address.
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
