/** What users read in their mailbox. Plain ASCII and without any name, so that links stay whole and nobody else's words appear. */
import type { Mail } from '../mail/index.ts'

export function recoveryMail(publicUrl: string, to: string, token: string): Mail {
  return {
    to,
    subject: 'A new password for Skein',
    text: [
      'Somebody asked for a new password for the account with this email address.',
      'Within five minutes it can be chosen here, once:',
      '',
      `${publicUrl}/password/reset?token=${token}`,
      '',
      'If it was not you, do nothing: your password stays as it is.',
    ].join('\n'),
  }
}

export function verificationMail(publicUrl: string, to: string, token: string): Mail {
  return {
    to,
    subject: 'Your email address for Skein',
    text: [
      'This address was given for an account. If it is yours, confirm it within a day:',
      '',
      `${publicUrl}/verify-email?token=${token}`,
      '',
      'If you know nothing of it, do nothing.',
    ].join('\n'),
  }
}
