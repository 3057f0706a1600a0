/**
 * Mails to users. They are plain ASCII, so that links stay intact, and contain no names, so that other users cannot
 * inject text.
 */
import type { Mail } from '../mail/index.ts'

export function recoveryMail(publicUrl: string, to: string, token: string): Mail {
  return {
    to,
    subject: 'Reset your Skein password',
    text: [
      'A password reset was requested for the account with this email address.',
      'Open this link within five minutes to choose a new password. It is valid once:',
      '',
      `${publicUrl}/password/reset?token=${token}`,
      '',
      'If you did not request it, ignore this mail: your password is unchanged.',
    ].join('\n'),
  }
}

export function verificationMail(publicUrl: string, to: string, token: string): Mail {
  return {
    to,
    subject: 'Verify your email address for Skein',
    text: [
      'This email address was registered for a Skein account. Open this link within a day to verify it:',
      '',
      `${publicUrl}/verify-email?token=${token}`,
      '',
      'If you did not register, ignore this mail.',
    ].join('\n'),
  }
}
