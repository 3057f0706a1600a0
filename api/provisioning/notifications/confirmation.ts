/**
 * What the address of a mail agrees with: a link that is signed, expires, and says nothing of who subscribed to what. Whoever reads
 * the mailbox follows it; until then nothing else is sent there.
 */
import { timingSafeEqual } from 'node:crypto'
import type { Mail } from '#api/identity/index.ts'
import { isId } from '#core/ids.ts'
import type { Keyring } from '#core/keyring/index.ts'

/** Three days: long enough for a weekend. */
export const LINK_LIFETIME_SECONDS = 259_200
/** An id, a time and a signature, with room. */
export const MAX_TOKEN_CHARS = 128

const PURPOSE = 'notification confirmation'

export type Confirmations = {
  mailFor(subscription: { id: string; contact: string }, nowSeconds: number): Mail
  /** The id of the subscription that the link was made for; undefined when it is not ours, or too old. */
  read(token: string, nowSeconds: number): string | undefined
}

export function createConfirmations(keyring: Keyring, publicUrl: string): Confirmations {
  const signatureOf = (id: string, expiresSeconds: number) => keyring.mac(PURPOSE, `${id} ${expiresSeconds}`)

  return {
    mailFor({ id, contact }, nowSeconds) {
      const expiresSeconds = Math.floor(nowSeconds) + LINK_LIFETIME_SECONDS
      const token = `${id}.${expiresSeconds}.${signatureOf(id, expiresSeconds).toString('base64url')}`
      // Neither topic nor name: nobody's words reach a stranger through us.
      return {
        to: contact,
        subject: 'Notifications from Skein',
        text: [
          'This address was given to receive notifications about messages of devices.',
          'If you want them, confirm it within three days:',
          '',
          `${publicUrl}/subscriptions/confirm?token=${token}`,
          '',
          'If you know nothing of it, do nothing: no notification is sent to you.',
        ].join('\n'),
      }
    },
    read(token, nowSeconds) {
      const [id = '', expires = '', signature = '', ...more] = token.split('.')
      if (more.length > 0 || !isId(id) || !/^\d{1,12}$/.test(expires)) return undefined
      const expected = signatureOf(id, Number(expires))
      const given = Buffer.from(signature, 'base64url')
      if (given.length !== expected.length || !timingSafeEqual(given, expected)) return undefined
      return Number(expires) > nowSeconds ? id : undefined
    },
  }
}
