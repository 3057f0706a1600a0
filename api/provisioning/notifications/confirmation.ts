/**
 * Confirmation links: a signed link that expires and does not reveal the subscriber or the topic. The reader of the
 * mailbox opens it to agree to notifications. Until then no other mail is sent to the address.
 */
import { timingSafeEqual } from 'node:crypto'
import type { Mail } from '#api/identity/index.ts'
import { isId } from '#core/ids.ts'
import type { Keyring } from '#core/keyring/index.ts'

/** Three days: long enough for a weekend. */
export const LINK_LIFETIME_SECONDS = 259_200
/** Maximum length of an id, a time and a signature, with a margin. */
export const MAX_TOKEN_CHARS = 128

const PURPOSE = 'notification confirmation'

export type Confirmations = {
  mailFor(subscription: { id: string; contact: string }, nowSeconds: number): Mail
  /** Returns the id of the subscription of the link. Undefined for an invalid or expired link. */
  read(token: string, nowSeconds: number): string | undefined
}

export function createConfirmations(keyring: Keyring, publicUrl: string): Confirmations {
  const signatureOf = (id: string, expiresSeconds: number) => keyring.mac(PURPOSE, `${id} ${expiresSeconds}`)

  return {
    mailFor({ id, contact }, nowSeconds) {
      const expiresSeconds = Math.floor(nowSeconds) + LINK_LIFETIME_SECONDS
      const token = `${id}.${expiresSeconds}.${signatureOf(id, expiresSeconds).toString('base64url')}`
      // The mail contains neither topic nor name, so that users cannot send texts to other people.
      return {
        to: contact,
        subject: 'Notifications from Skein',
        text: [
          'This email address was registered for notifications about messages of devices.',
          'Open this link within three days to receive them:',
          '',
          `${publicUrl}/subscriptions/confirm?token=${token}`,
          '',
          'If you did not register, ignore this mail: you will receive no notifications.',
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
