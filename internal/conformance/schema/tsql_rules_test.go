package schema_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sqlc-dev/teesql/ast"
	"github.com/stretchr/testify/assert"
)

// Bad plans, dead-locks and lock escalation show up only on a SQL Server under load. These rules over the parsed text keep out
// the statements that lead to them.

// A finding is a place that a rule is about; broken says how it breaks the rule, if it does.
type finding struct {
	p      *procedure // nil for a table
	node   any
	broken string
}

// A tsqlRule is a rule, and what breaks it: bodies of procedures, or whole statements that create a table.
type tsqlRule struct {
	name   string
	check  func(*tsql) []finding
	broken []string
}

var tsqlRules = []tsqlRule{
	{"asks no catalogue", each(asksNoCatalogue), []string{
		"IF OBJECT_ID(N'[dbo].[T]') IS NULL RETURN;",
		"SELECT 1 FROM sys.objects;",
	}},
	{"picks before it writes", each(picksBeforeItWrites), []string{
		"DELETE FROM [dbo].[T] WHERE Seq IN (SELECT TOP (5) Seq FROM [dbo].[T] WITH (UPDLOCK));",
		"DELETE TOP (5) FROM [dbo].[T] WHERE a = 1;",
	}},
	{"joins from the keys", each(joinsFromTheKeys), []string{
		"UPDATE t SET a = 1 FROM [dbo].[T] AS t WITH (FORCESEEK) INNER JOIN @K AS k ON k.Seq = t.Seq OPTION (LOOP JOIN, FORCE ORDER, MAXDOP 1);",
		"DELETE FROM [dbo].[T] WHERE Seq IN (SELECT Seq FROM @K);",
		"SELECT 1 FROM @K AS k INNER JOIN [dbo].[T] AS t WITH (FORCESEEK) ON t.Seq = k.Seq;",
		"SELECT 1 FROM @K AS k INNER JOIN [dbo].[T] AS t WITH (FORCESEEK) ON t.Seq = k.Seq OPTION (LOOP JOIN, MAXDOP 1);",
	}},
	{"seeks", each(seeks), []string{
		"SELECT a FROM [dbo].[T] WHERE Seq = 1;",
		"IF EXISTS (SELECT 1 FROM [dbo].[T] WITH (READPAST)) RETURN;",
		"SELECT k.Seq FROM @K AS k LEFT JOIN [dbo].[T] AS t ON t.Seq = k.Seq;",
	}},
	{"can seek", canSeek, []string{
		"SELECT a FROM [dbo].[Outbox_State] WITH (FORCESEEK);",
		"SELECT a FROM [dbo].[Outbox_State] AS s WITH (FORCESEEK) WHERE s.NextAttemptAt < @Now;",
		"SELECT a FROM [dbo].[Outbox_State] AS s WITH (FORCESEEK) WHERE s.TopicKey = @Key;", // the filter of the index
		"SELECT a FROM [dbo].[Outbox_State] AS s WITH (FORCESEEK) WHERE @Seq IS NULL OR s.Seq = @Seq;",
		"SELECT a FROM [dbo].[Outbox_State] AS s WITH (FORCESEEK) WHERE s.Seq + 1 = @Seq;",
		"SELECT a FROM [dbo].[Outbox_State] AS s WITH (FORCESEEK) WHERE s.Seq = (SELECT MAX(k.Seq) FROM @K AS k);",
		"SELECT a FROM [dbo].[Outbox_State] AS s WITH (FORCESEEK) WHERE EXISTS (SELECT 1 FROM @K AS k WHERE k.Seq = s.Seq);",
	}},
	{"reads what the index has", readsWhatTheIndexHas, []string{
		"SELECT s.Flags FROM [dbo].[Outbox_State] AS s WITH (FORCESEEK) WHERE s.Status = 3 AND s.ProcessedAt > @Since;",
		"SELECT o.Topic FROM @K AS k INNER JOIN [dbo].[Outbox] AS o WITH (FORCESEEK) ON o.MessageId = k.MessageId;",
		"SELECT Topic FROM [dbo].[Outbox] WITH (FORCESEEK) WHERE MessageId = @Id;",
	}},
	{"writes by a whole key", writesByAWholeKey, []string{
		"DELETE w FROM @K AS k INNER JOIN [dbo].[OutboxJoinWait] AS w WITH (ROWLOCK, FORCESEEK) ON w.JoinId = k.JoinId;",
	}},
	{"reads large columns alone", readsLargeColumnsAlone, []string{
		"SELECT o.Payload FROM [dbo].[Outbox] AS o WITH (FORCESEEK) INNER JOIN [dbo].[Outbox_State] AS s WITH (FORCESEEK) ON s.Seq = o.Seq WHERE o.Seq = 1;",
		"SELECT Headers FROM [dbo].[Outbox] WHERE Seq = 1 AND NOT EXISTS (SELECT 1 FROM [dbo].[Outbox_Log] AS l WHERE l.Position = 1);",
		"SELECT j.Metadata FROM @Page AS p INNER JOIN [dbo].[OutboxJoin] AS j WITH (FORCESEEK) ON j.JoinId = p.JoinId;",
		"SELECT (SELECT TOP (1) a.Error FROM [dbo].[Outbox_Attempt] AS a WHERE a.Seq = s.Seq) FROM [dbo].[Outbox_State] AS s WHERE s.Seq = 1;",
	}},
	{"compares by code point", each(comparesByCodePoint), []string{
		"DECLARE @Topic NVARCHAR(255); IF @Topic = N'' RETURN;",
		"DECLARE @Topic NVARCHAR(255), @Other NVARCHAR(255); SELECT 1 WHERE @Topic <> @Other;",
		"DECLARE @Topic NVARCHAR(255); SELECT NULLIF(@Topic, N'');",
		"DECLARE @Topic NVARCHAR(255); SELECT CASE @Topic WHEN N'' THEN 1 END;",
		"DECLARE @Topic NVARCHAR(255); IF @Topic IN (N'a', N'') RETURN;",
	}},
	{"takes no locked row for none", each(takesNoLockedRowForNone), []string{
		"IF EXISTS (SELECT 1 FROM [dbo].[Outbox_Paused] WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) WHERE TopicKey = 1) RETURN;",
		"SELECT g.Position FROM [dbo].[Outbox_Log_Group] AS g WITH (READCOMMITTEDLOCK, READPAST, FORCESEEK) WHERE g.GroupName = @Group;",
	}},
	{"adds what it does not have", each(addsWhatItDoesNotHave), []string{
		"INSERT INTO @Old (Seq) SELECT s.Seq FROM [dbo].[Outbox_State] AS s; " +
			"INSERT INTO @Old (Seq) SELECT l.Seq FROM @Looked AS l WHERE NOT EXISTS (SELECT 1 FROM [dbo].[Outbox_State] AS s WHERE s.Seq = l.Seq);",
	}},
	{"locks by key", each(locksByKey), []string{
		"UPDATE [dbo].[T] SET a = 1 WHERE Seq = 1;",
		"UPDATE [dbo].[T] WITH (ROWLOCK, FORCESEEK) SET a = 1 WHERE Seq = 1;",
		"UPDATE t SET a = 1 FROM [dbo].[T] AS t WITH (FORCESEEK) WHERE t.Seq = 1;",
		"SELECT a FROM [dbo].[T] WITH (UPDLOCK, ROWLOCK) WHERE Seq = 1;",
	}},
	{"finds without locks", each(findsWithoutLocks), []string{
		"SELECT Seq FROM [dbo].[T] AS t WITH (UPDLOCK) WHERE NOT EXISTS (SELECT 1 FROM [dbo].[K]);",
		"SELECT t.Seq FROM [dbo].[T] AS t WITH (UPDLOCK) LEFT JOIN [dbo].[K] AS k ON k.Seq = t.Seq WHERE k.Seq IS NULL;",
		"SELECT t.Seq FROM [dbo].[K] AS k INNER JOIN [dbo].[T] AS t WITH (UPDLOCK) ON t.Seq = k.Seq WHERE t.a NOT IN (SELECT a FROM [dbo].[L]);",
		"DELETE FROM [dbo].[T] WHERE a = 1 AND NOT EXISTS (SELECT 1 FROM [dbo].[K]);",
	}},
	{"passes over at a level that may", passesOverAtALevelThatMay, []string{
		"SELECT a FROM [dbo].[T] WITH (UPDLOCK, READPAST, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK) WHERE Seq = 1;",
		"IF @Outer = 0 SELECT a FROM [dbo].[T] WITH (UPDLOCK, READPAST, REPEATABLEREAD, ROWLOCK, FORCESEEK) WHERE Seq = 1;",
		"SELECT a FROM [dbo].[T] WITH (READPAST) WHERE Seq = 1;",
		"UPDATE t SET a = 1 FROM [dbo].[T] AS t WITH (ROWLOCK, READPAST, FORCESEEK) WHERE t.Seq = 1;",
	}},
	{"reads what is committed now", readsWhatIsCommittedNow, []string{
		"SET XACT_ABORT OFF; SELECT @a = a FROM [dbo].[T] WITH (FORCESEEK) WHERE Seq = 1; UPDATE t SET a = 1 FROM [dbo].[T] AS t WITH (ROWLOCK, FORCESEEK) WHERE t.Seq = 1;",
		"INSERT INTO [dbo].[T] (a) SELECT a FROM [dbo].[K] AS k WITH (UPDLOCK, ROWLOCK, FORCESEEK) WHERE k.Seq = 1;",
		"INSERT INTO [dbo].[T] (a) SELECT a FROM [dbo].[K] AS k WITH (UPDLOCK, READCOMMITTEDLOCK, ROWLOCK, FORCESEEK) WHERE k.Seq = 1;",
		"INSERT INTO [dbo].[T] (a) SELECT a FROM [dbo].[K] AS k WITH (READCOMMITTED, FORCESEEK) WHERE k.Seq = 1;",
	}},
	{"locks in one order", locksInOneOrder, []string{
		"UPDATE j SET a = 1 FROM [dbo].[OutboxJoin] AS j WITH (ROWLOCK) WHERE j.Seq = 1; UPDATE s SET a = 1 FROM [dbo].[Outbox_State] AS s WITH (ROWLOCK) WHERE s.Seq = 1;",
		"SELECT a FROM [dbo].[OutboxJoin] WITH (UPDLOCK, READPAST); SELECT a FROM [dbo].[Outbox_State] WHERE Seq = 1;",
		"SELECT a FROM [dbo].[Outbox_Other] WITH (UPDLOCK);",
	}},
	{"opens with its options", each(opensWithItsOptions), []string{
		"SELECT 1;",
		"SET XACT_ABORT ON; SET NOCOUNT ON;",
		"SET NOCOUNT ON; SELECT 1 FROM [dbo].[T];",
	}},
	{"leaves a caller's transaction alone", leavesTheCallersTransaction, []string{
		"SET XACT_ABORT ON;",
		"IF @a = 1 SET XACT_ABORT ON;",
	}},
	{"returns contents after it commits", returnsContentsAfterItCommits, []string{
		"SET TRANSACTION ISOLATION LEVEL READ COMMITTED; BEGIN TRANSACTION; SELECT o.Payload FROM [dbo].[Outbox] AS o WITH (FORCESEEK) WHERE o.Seq = 1; COMMIT TRANSACTION;",
	}},
	{"commits what it begins", each(commitsWhatItBegins), []string{
		"BEGIN TRANSACTION; COMMIT TRANSACTION;",
		"SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SELECT 1;",
	}},
	{"brackets what it writes", bracketsWhatItWrites, []string{
		"INSERT INTO [dbo].[T] (a) VALUES (1); INSERT INTO [dbo].[T] (a) VALUES (2);",
		"INSERT INTO [dbo].[T] (a) VALUES (1); EXEC [dbo].[Outbox_Q];",
		"BEGIN TRANSACTION; INSERT INTO [dbo].[T] (a) VALUES (1); COMMIT TRANSACTION;",
		"BEGIN TRY BEGIN TRANSACTION; DELETE FROM [dbo].[T]; COMMIT TRANSACTION; END TRY BEGIN CATCH ROLLBACK TRANSACTION; THROW; END CATCH",
		"BEGIN TRY BEGIN TRANSACTION; DELETE FROM [dbo].[T]; COMMIT TRANSACTION; END TRY BEGIN CATCH IF XACT_STATE() <> 0 ROLLBACK TRANSACTION; END CATCH",
		"BEGIN TRY IF @Outer = 0 BEGIN TRANSACTION; ELSE SAVE TRANSACTION A; DELETE FROM [dbo].[T]; COMMIT TRANSACTION; END TRY " +
			"BEGIN CATCH IF @Outer = 0 AND XACT_STATE() <> 0 ROLLBACK TRANSACTION; IF @Outer > 0 AND XACT_STATE() = 1 ROLLBACK TRANSACTION A; THROW; END CATCH",
		"BEGIN TRY IF @Outer = 0 BEGIN TRANSACTION; ELSE SAVE TRANSACTION A; DELETE FROM [dbo].[T]; IF @Outer = 0 COMMIT TRANSACTION; END TRY " +
			"BEGIN CATCH IF @Outer = 0 AND XACT_STATE() <> 0 ROLLBACK TRANSACTION; IF @Outer > 0 AND XACT_STATE() = 1 ROLLBACK TRANSACTION B; THROW; END CATCH",
	}},
	{"names each savepoint once", namesEachSavepointOnce, []string{
		"SAVE TRANSACTION A; SAVE TRANSACTION A;",
		"SAVE TRANSACTION A23456789012345678901234567890123;",
		"SAVE TRANSACTION @Name;",
	}},
	{"answers by SELECT", each(answersBySelect), []string{
		"UPDATE [dbo].[T] SET a = 1 OUTPUT inserted.a WHERE Seq = 1;",
		"DELETE FROM [dbo].[T] OUTPUT deleted.a;",
	}},
	{"outputs what it keeps", each(outputsWhatItKeeps), []string{
		"UPDATE t SET a = t.a + 1 OUTPUT inserted.Seq, inserted.a INTO @T (Seq, a) FROM [dbo].[T] AS t WITH (ROWLOCK) WHERE t.Seq = 1;",
	}},
	{"numbers in order", each(numbersInOrder), []string{
		"INSERT INTO [dbo].[Outbox] (a) SELECT a FROM OPENJSON(@Arg) WITH (a INT) AS m;",
		"DECLARE @P TABLE (Place INT IDENTITY(1, 1), a INT); INSERT INTO @P (a) SELECT a FROM @Q;",
	}},
	{"states are of fixed width", statesAreOfFixedWidth, []string{
		"CREATE TABLE [dbo].[T] (Seq BIGINT NOT NULL, NextAttemptAt DATETIME2(3) NOT NULL, LastError NVARCHAR(MAX) NULL);",
		"CREATE TABLE [dbo].[T] (Seq BIGINT NOT NULL, NextAttemptAt DATETIME2(3) NOT NULL, ProcessedBy NVARCHAR(100) NULL);",
		"CREATE TABLE [dbo].[T] (Seq BIGINT NOT NULL, NextAttemptAt DATETIME2(3) NOT NULL, Owner VARBINARY(16) NULL);",
	}},
}

func TestTheTSQLKeepsItsRules(t *testing.T) {
	s := parsedTSQL(t)
	assert.Greater(t, len(s.procedures), 35)
	for _, rule := range tsqlRules {
		t.Run(rule.name, func(t *testing.T) {
			found := rule.check(s)
			for _, f := range found {
				file := ""
				if f.p != nil {
					file = f.p.file
				}
				assert.Empty(t, f.broken, "%s:%d: %s", file, line(f.node), rule.name)
			}
			assert.NotEmpty(t, found, "the rule has found nothing that it is about")
		})
	}
}

// Rules that find nothing would hold as well: each is shown what breaks it, beside the tables as they are.
func TestTheRulesAreBrokenByWhatTheyForbid(t *testing.T) {
	whole := parsedTSQL(t)
	for _, rule := range tsqlRules {
		assert.NotEmpty(t, rule.broken, rule.name)
		for _, text := range rule.broken {
			s := &tsql{tables: whole.tables, indexes: whole.indexes, order: whole.order}
			if !strings.HasPrefix(text, "CREATE TABLE") {
				text = fmt.Sprintf("ALTER PROCEDURE [dbo].[Outbox_P] AS BEGIN %s END", text)
			}
			s.add(t, "operations/broken.sql", text)
			assert.True(t, slices.ContainsFunc(rule.check(s), func(f finding) bool { return f.broken != "" }), "%s: %s", rule.name, text)
		}
	}
}

// each makes a rule of what is asked of each procedure.
func each(check func(*procedure) []finding) func(*tsql) []finding {
	return func(s *tsql) (found []finding) {
		for _, p := range s.procedures {
			for _, f := range check(p) {
				f.p = p
				found = append(found, f)
			}
		}
		return found
	}
}

// unconditional returns the statements of one kind that a procedure runs in any case, but for errors.
func unconditional[T comparable](p *procedure) (found []T) {
	var conditional []T
	for _, condition := range nodes[*ast.IfStatement](p.AlterProcedureStatement) {
		conditional = append(conditional, nodes[T](condition)...)
	}
	for _, node := range nodes[T](p.AlterProcedureStatement) {
		if !slices.Contains(conditional, node) {
			found = append(found, node)
		}
	}
	return found
}
