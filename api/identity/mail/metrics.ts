/** Mails on their way. */
import { counter, defineMetrics, gauge } from '#core/metrics/index.ts'

export const MAIL_METRICS = defineMetrics('Mail', {
  waiting: gauge('skein_mails_waiting', 'Mails that wait or are being sent'),
  limit: gauge('skein_mails_waiting_limit', 'Mails that may wait; further ones are dropped'),
  mails: counter(
    'skein_mails_total',
    'Mails by what became of an attempt',
    { outcome: 'sent, retried, given_up or dropped (the queue was full or the address invalid)' },
    ['sent', 'retried', 'given_up', 'dropped'].map((outcome) => ({ outcome })),
  ),
})
