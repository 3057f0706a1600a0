/** What a contact is: an email address, or a URL. */

/** All mails use one server, so they count as one host. */
export const MAIL = 'mail'

export const hostOf = (contact: string): string => (contact.includes('://') ? new URL(contact).host : MAIL)
