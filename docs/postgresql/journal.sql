-- The role of one site's journal ([journal] url), and nothing more. The journals of the two sites share no database.
-- As a superuser, in the journal's database:
--   psql -d DATABASE -v role=twinlog_journal_a -v database=DATABASE -f journal.sql
--   psql -d DATABASE -c '\password twinlog_journal_a'
-- The schema is made here, so that the role needs no CREATE on the database; it makes its tables in it, and owns them.
CREATE ROLE :"role" LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS NOINHERIT CONNECTION LIMIT 20;
REVOKE ALL ON DATABASE :"database" FROM PUBLIC;
GRANT CONNECT ON DATABASE :"database" TO :"role";
REVOKE ALL ON SCHEMA public FROM PUBLIC;
CREATE SCHEMA twinlog_journal;
GRANT USAGE, CREATE ON SCHEMA twinlog_journal TO :"role";
