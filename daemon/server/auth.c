// SPDX-License-Identifier: MIT
/*
 * Authentication over TCP: by API key; or, on loopback without keys, everybody as one user.
 *
 * Every route needs a key, so that clients without one learn nothing: no model names, no counters.
 * CORS preflight requests are never granted, so pages of other origins cannot send a key.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "api_keys.h"
#include "listen_tcp.h"
#include "log.h"
#include "server_internal.h"

#define CHALLENGE "WWW-Authenticate: Bearer realm=\"txdad\"\r\n"
#define BAD_KEY	  "WWW-Authenticate: Bearer realm=\"txdad\", error=\"invalid_token\"\r\n"

static bool refuse(struct http_refusal *refusal, int status, const char *headers,
		   const char *message)
{
	refusal->status = status;
	refusal->headers = headers;
	snprintf(refusal->message, sizeof(refusal->message), "%s", message);
	return false;
}

static unsigned count_headers(const struct http_request *r, const char *name)
{
	unsigned n = 0;

	for (unsigned i = 0; i < r->n_headers; i++)
		n += !strcasecmp(r->headers[i].name, name);
	return n;
}

static bool check_key(const struct api_keys *keys, const struct http_request *r,
		      struct identity *ret, struct http_refusal *refusal)
{
	const char *value = http_request_header(r, "Authorization"), *key;
	const struct identity *user;

	if (!value)
		return refuse(refusal, 401, CHALLENGE,
			      "an API key is required, in a header 'Authorization: Bearer KEY'");
	if (count_headers(r, "Authorization") > 1)
		return refuse(refusal, 401, CHALLENGE, "more than one Authorization header");
	if (strncasecmp(value, "Bearer ", 7))
		return refuse(refusal, 401, CHALLENGE,
			      "the Authorization header is not of the form 'Bearer KEY'");
	key = value + 7;
	key += strspn(key, " ");
	user = api_keys_find(keys, key, strlen(key));
	if (!user)
		return refuse(refusal, 401, BAD_KEY, "the API key is not valid");
	*ret = *user;
	return true;
}

/*
 * Whether a Host header names this machine in a way that no foreign DNS server can answer for:
 * localhost, or one of the loopback addresses, all of which --host can bind to.
 */
static bool is_local_host(const char *host)
{
	bool brackets = *host == '[';
	const char *start = host + brackets, *end = start + strcspn(start, brackets ? "]" : ":");
	struct sockaddr_storage a = {.ss_family = brackets ? AF_INET6 : AF_INET};
	void *address = brackets ? (void *)&((struct sockaddr_in6 *)&a)->sin6_addr
				 : (void *)&((struct sockaddr_in *)&a)->sin_addr;
	size_t n = (size_t)(end - start);
	char name[INET6_ADDRSTRLEN];

	if (n >= sizeof(name) || (brackets && *end++ != ']') || (*end && *end != ':'))
		return false;
	snprintf(name, sizeof(name), "%.*s", (int)n, start);
	return (!brackets && !strcasecmp(name, "localhost")) ||
	       (inet_pton(a.ss_family, name, address) == 1 && listen_tcp_is_loopback(&a));
}

/*
 * Without keys, a browser on this machine could be used by any page that it displays. Requests of
 * pages carry the page's origin (when posting), or the page's own host name (DNS rebinding).
 */
static bool check_browser(const struct http_request *r, struct http_refusal *refusal)
{
	const char *host = http_request_header(r, "Host"),
		   *site = http_request_header(r, "Sec-Fetch-Site");

	if (host && !is_local_host(host))
		return refuse(refusal, 403, NULL,
			      "without API keys, the Host header must be localhost or a loopback "
			      "address, such as 127.0.0.1 or [::1]");
	if (http_request_header(r, "Origin") || (site && strcasecmp(site, "none")))
		return refuse(refusal, 403, NULL,
			      "without API keys, requests from web pages are refused (Origin or "
			      "Sec-Fetch-Site header)");
	return true;
}

bool server_authorise(void *arg, const struct http_conn *c, const struct http_request *r,
		      struct identity *ret, struct http_refusal *refusal)
{
	struct server *s = arg;
	bool ok;

	(void)c;
	if (s->keys) {
		ok = check_key(s->keys, r, ret, refusal);
	} else {
		*ret = (struct identity){
			.uid = IDENTITY_OWN_UIDS, .gid = (gid_t)-1, .name = "anonymous"};
		ok = check_browser(r, refusal);
	}
	s->metrics.turned_away += !ok;
	return ok;
}

void server_count_refused(struct server *s, const struct http_conn *c, const struct http_answer *a)
{
	s->refused++;
	snprintf(s->refused_from, sizeof(s->refused_from), "%s", http_conn_peer(c)->address);
	snprintf(s->refused_why, sizeof(s->refused_why), "%s", a->note);
}

void server_log_refused(struct server *s)
{
	if (!s->refused)
		return;
	log_warning("refused %u request%s over TCP; the last came from %s: %s", s->refused,
		    s->refused == 1 ? "" : "s", s->refused_from, s->refused_why);
	s->refused = 0;
}
