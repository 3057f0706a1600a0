/** What answers say to browsers so that nobody else's page can make use of them. */

/** Of every answer: it is what its content type says. */
export const ANSWER_HEADERS = { 'X-Content-Type-Options': 'nosniff' } as const

/**
 * Of every page: it loads what is ours, stands in no frame and tells nobody where it was left from. Swagger UI sets the styles of its
 * elements itself.
 */
export const PAGE_HEADERS = {
  ...ANSWER_HEADERS,
  'Content-Security-Policy': [
    "default-src 'self'",
    "style-src 'self' 'unsafe-inline'",
    "img-src 'self' data:",
    "object-src 'none'",
    "base-uri 'none'",
    "form-action 'self'",
    "frame-ancestors 'none'",
  ].join('; '),
  'X-Frame-Options': 'DENY',
  'Referrer-Policy': 'no-referrer',
} as const
